//! Standard output: data only, buffered, flushed as often as a reader wants to see it.

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};

use serde::Serialize;

/// What results are printed as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Lines for people and line tools.
    Text,
    /// One object in all.
    Json,
    /// One object a line, as they come.
    JsonLines,
}

/// Standard output.
pub struct Out {
    writer: BufWriter<Stdout>,
    terminal: bool,
}

impl Out {
    pub fn new() -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Self { writer: BufWriter::with_capacity(64 * 1024, stdout), terminal }
    }

    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Bytes as they are. On a terminal they show at once.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)?;
        if self.terminal { self.writer.flush() } else { Ok(()) }
    }

    /// An object on a line of its own.
    pub fn object(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.bytes(&line)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
