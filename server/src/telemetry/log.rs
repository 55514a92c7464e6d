//! The log: text on a terminal, JSON otherwise, on standard error. Never file content, never whole paths at INFO.

use std::io::{self, IsTerminal};

use serde::Deserialize;
use tracing_subscriber::EnvFilter;

/// `[log]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// Text on a terminal, JSON otherwise, unless named.
    pub format: LogFormat,
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter of tracing-subscriber such as `info,h2=warn`.
    pub level: String,
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Text,
    /// For machines.
    Json,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::Auto, level: "info".to_owned() }
    }
}

/// What a level lets through.
///
/// # Errors
/// It is no filter that tracing-subscriber knows.
pub fn filter(level: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(level).map_err(|error| error.to_string())
}

/// Starts the log of this process; a second start leaves the first one as it is.
///
/// # Errors
/// The level is no filter that tracing-subscriber knows.
pub fn start(config: &LogConfig) -> Result<(), String> {
    let filter = filter(&config.level).map_err(|error| format!("log.level: {error}"))?;
    let text = match config.format {
        LogFormat::Text => true,
        LogFormat::Json => false,
        LogFormat::Auto => io::stderr().is_terminal(),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = if text { builder.try_init() } else { builder.json().flatten_event(true).try_init() };
    // In one process of many tests the first agent's log serves all.
    drop(started);
    Ok(())
}
