//! Content that a command takes from this machine: a file, or standard input for `-`.

use std::{ffi::OsStr, io::IsTerminal, path::Path};

use tokio::io::{AsyncRead, AsyncReadExt, Stdin};

use super::fail::Failure;

/// Standard input as a source of content; refused on a terminal, where it would only seem to hang.
pub fn standard_input(flag: &str) -> Result<Stdin, Failure> {
    if std::io::stdin().is_terminal() {
        return Err(Failure::Usage(format!("{flag}: standard input is a terminal; name a file, or feed it by a pipe")));
    }
    Ok(tokio::io::stdin())
}

/// The first `bytes_max` bytes of what `name` names; the caller tells from the length whether there were more.
pub async fn load(flag: &str, name: &OsStr, bytes_max: u64) -> Result<Vec<u8>, Failure> {
    let named = |error| Failure::File(name.to_string_lossy().into_owned(), error);
    let from: Box<dyn AsyncRead + Send + Unpin> = if name == "-" {
        Box::new(standard_input(flag)?)
    } else {
        Box::new(tokio::fs::File::open(Path::new(name)).await.map_err(named)?)
    };
    let mut bytes = Vec::new();
    from.take(bytes_max).read_to_end(&mut bytes).await.map_err(named)?;
    Ok(bytes)
}
