//! Every bound of the engines, passed in where it is used. Units and `_max` end the name.

use std::time::Duration;

/// The bounds of one host's engines.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Longest request, in bytes of its protobuf encoding.
    pub request_bytes_max: u64,
    /// Largest file that Patch takes or leaves, in bytes.
    pub patch_file_bytes_max: u64,
    /// Most edits in one Patch.
    pub patch_edit_count_max: usize,
    /// Most bytes that one Read of a disk returns.
    pub offline_read_bytes_max: u64,
    /// Largest file on a disk whose revision is computed, in bytes.
    pub offline_revision_bytes_max: u64,
    /// Time to the first byte of a disk's answer.
    pub offline_budget: Duration,
    /// Time of one Search or List.
    pub search_budget: Duration,
    /// Most matches that one Search returns.
    pub search_match_count_max: usize,
    /// Matches returned where the caller says nothing.
    pub search_match_count_default: usize,
    /// Most globs of one kind.
    pub glob_count_max: usize,
    /// Longest glob, in bytes.
    pub glob_bytes_max: usize,
    /// Longest pattern, in bytes.
    pub pattern_bytes_max: usize,
    /// Largest file that a Search may be told to search, in bytes.
    pub search_file_bytes_max: u64,
    /// Largest file that a Search searches where the caller says nothing, in bytes.
    pub search_file_bytes_default: u64,
    /// Most encoded bytes of matches that one Search returns.
    pub search_result_bytes_max: u64,
    /// Most context lines on each side of a match.
    pub context_line_count_max: usize,
    /// Bytes of each line that are searched.
    pub line_search_bytes_max: usize,
    /// Bytes of each line that are returned.
    pub line_text_bytes_max: usize,
    /// Threads of one Search.
    pub search_thread_count: usize,
    /// Bytes that one Search holds ahead of its sink.
    pub search_buffer_bytes_max: usize,
    /// Most entries that one List returns.
    pub list_entry_count_max: usize,
    /// Entries returned where the caller says nothing.
    pub list_entry_count_default: usize,
    /// Deepest List.
    pub list_depth_max: usize,
    /// Names in one directory that are held to be sorted; more is an error of that directory.
    pub directory_name_count_max: usize,
    /// Directories within each other that a walk enters.
    pub walk_depth_max: usize,
    /// Bytes in one piece of a Read.
    pub read_piece_bytes_max: usize,
    /// Symbolic links followed on one path, as in path_resolution(7).
    pub link_hop_count_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_bytes_max: 7 << 20,
            patch_file_bytes_max: 64 << 20,
            patch_edit_count_max: 100,
            offline_read_bytes_max: 1 << 30,
            offline_revision_bytes_max: 256 << 20,
            offline_budget: Duration::from_secs(10),
            search_budget: Duration::from_secs(10),
            search_match_count_max: 5_000,
            search_match_count_default: 200,
            glob_count_max: 32,
            glob_bytes_max: 1_024,
            pattern_bytes_max: 4_096,
            search_file_bytes_max: 64 << 20,
            search_file_bytes_default: 1 << 20,
            search_result_bytes_max: 4 << 20,
            context_line_count_max: 5,
            line_search_bytes_max: 1 << 20,
            line_text_bytes_max: 1_000,
            search_thread_count: 2,
            search_buffer_bytes_max: 8 << 20,
            list_entry_count_max: 1_000_000,
            list_entry_count_default: 10_000,
            list_depth_max: 64,
            directory_name_count_max: 10_000_000,
            walk_depth_max: 1_024,
            read_piece_bytes_max: 256 << 10,
            link_hop_count_max: 40,
        }
    }
}
