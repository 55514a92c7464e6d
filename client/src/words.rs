//! The contract's enumerations in words, as the command line and the agents' tools write them.

use dormouse_proto::files::v1::{FileType, Origin, ServedFrom, StopReason};

/// `disk` or `workspace`; empty where the host did not say, or says what this client does not know.
pub fn served_from(origin: &Origin) -> &'static str {
    match origin.served_from() {
        ServedFrom::Unspecified => "",
        ServedFrom::Workspace => "workspace",
        ServedFrom::Disk => "disk",
    }
}

/// Why a list or search stopped, such as `max_matches`; empty where nothing was stopped.
pub fn stop_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Unspecified => "",
        StopReason::MaxMatches => "max_matches",
        StopReason::Budget => "budget",
        StopReason::MaxBytes => "max_bytes",
        StopReason::MaxEntries => "max_entries",
    }
}

/// A type of file, such as `regular`; `unknown` where the host did not say.
pub fn file_type(kind: FileType) -> &'static str {
    match kind {
        FileType::Unspecified => "unknown",
        FileType::Regular => "regular",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character_device",
        FileType::BlockDevice => "block_device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_reasons_have_the_contract_s_words() {
        let words: Vec<_> = (0..5).map(|number| stop_reason(StopReason::try_from(number).unwrap())).collect();
        assert_eq!(words, ["", "max_matches", "budget", "max_bytes", "max_entries"]);
    }
}
