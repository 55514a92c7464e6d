//! Lines: they end with LF; a last line without one counts, an LF at the end starts no further line.
