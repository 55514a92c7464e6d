// What calls answer: plain objects with the wire's names (snake_case), ready for JSON.stringify but where bytes are said.
//
// Paths are text. Linux names are bytes: where a name is not UTF-8, `path` shows U+FFFD for what cannot be read, and
// `raw_path` holds the true name.

export type FileType =
  | ""
  | "regular"
  | "directory"
  | "symlink"
  | "fifo"
  | "socket"
  | "character_device"
  | "block_device";

/** Empty: it was not stopped. */
export type StopReason = "" | "max_matches" | "budget" | "max_bytes" | "max_entries";

/** Where an answer came from, and how far it can be trusted. */
export interface Origin {
  served_from: "" | "workspace" | "disk";
  /** Only of a disk answer. */
  consistency: "" | "exact" | "crash";
  generation: number;
}

/** One file or directory. */
export interface FileInfo {
  path: string;
  raw_path?: Uint8Array;
  type: FileType;
  size_bytes: number;
  /** Permission, set-id and sticky bits (0o7777). */
  mode: number;
  uid: number;
  gid: number;
  link_count: number;
  /** RFC 3339, in UTC, to the nanosecond; empty where the host gives none. */
  modify_time: string;
  /** Only of a symbolic link. */
  symlink_target?: string;
  raw_symlink_target?: Uint8Array;
  /** SHA-256 of the content, 64 lowercase hex characters. Only when asked for; null where the host gives none. */
  revision?: string | null;
  /** Opaque; differs whenever the file's inode, size or times differ. */
  etag: string;
}

/** `stat` */
export interface StatResult extends FileInfo {
  origin: Origin;
}

/** `stat` with `revision: true` */
export interface StatWithRevision extends StatResult {
  revision: string | null;
}

/** `readWithInfo` */
export interface ReadResult {
  content: Uint8Array;
  file: FileInfo;
  origin: Origin;
  /** Where `content` begins in the file. */
  offset: number;
  /** Of the whole file; null where the host gives none. */
  revision: string | null;
  /** Of the whole file, when lines were asked for. */
  line_count: number | null;
  /** The file changed while it was read: the bytes may be a mixture. */
  changed: boolean;
}

/** How a listing ended. */
export interface ListSummary {
  truncated: boolean;
  stop_reason: StopReason;
  /** Directories that could not be read. */
  unreadable: number;
}

/** `list` */
export interface ListResult extends ListSummary {
  entries: FileInfo[];
  origin: Origin;
}

/** One line without its end, at most 1,000 bytes of it. */
export interface Line {
  text: string;
  /** Set exactly when `text` is not the line's true bytes. */
  raw?: Uint8Array;
  /** The line is longer. */
  clipped: boolean;
}

/** One line that matches. */
export interface Match {
  path: string;
  raw_path?: Uint8Array;
  /** 1-based. */
  line: number;
  /** 1-based byte column of the first match on the line. */
  column: number;
  /** 1-based byte column just past that match. */
  end_column: number;
  text: string;
  /** Set exactly when `text` is not the line's true bytes. */
  raw_text?: Uint8Array;
  text_clipped: boolean;
  before: Line[];
  after: Line[];
}

/** How a search ended. */
export interface SearchSummary {
  truncated: boolean;
  stop_reason: StopReason;
  files_scanned: number;
  /** Files that were not searched, though the globs allow them. */
  skipped: { binary: number; too_large: number; special: number; unreadable: number };
}

/** `search` */
export interface SearchResult extends SearchSummary {
  matches: Match[];
  origin: Origin;
}

/** `write` */
export interface WriteResult {
  revision: string;
  /** null when the file was created. */
  previous_revision: string | null;
  bytes_written: number;
  /** The file and its directory are on stable storage. */
  durable: boolean;
  file: FileInfo;
  /** The stored answer of an earlier attempt. */
  replayed: boolean;
}

/** `patch` */
export interface PatchResult extends WriteResult {
  replacements: number;
  /** Another process kept the replaced file open for writing; what it writes from now on is lost. */
  replaced_open_file: boolean;
}

/** `remove` */
export interface RemoveResult {
  previous_revision: string | null;
  durable: boolean;
  replayed: boolean;
}

/** `move` and `makeDirectory` */
export interface MoveResult {
  file: FileInfo;
  durable: boolean;
  replayed: boolean;
}

/** `capabilities`. Durations in seconds. */
export interface Capabilities {
  /** Such as "file_search". */
  features: string[];
  limits: {
    max_request_bytes: number;
    max_patch_file_bytes: number;
    max_patch_edits: number;
    max_search_matches: number;
    max_search_globs: number;
    max_search_file_bytes: number;
    max_search_pattern_bytes: number;
    max_search_result_bytes: number;
    max_glob_bytes: number;
    max_list_entries: number;
    max_list_depth: number;
    max_offline_read_bytes: number;
    search_budget: number;
    offline_budget: number;
    idempotency_retention: number;
  };
  server_version: string;
}
