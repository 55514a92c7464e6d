//! What a command works with: the clients, the way of printing, the notes.

use std::{io::Write, sync::Arc};

use dormouse_client::{
    FilesClient, HostClient, HostWaker, Options, Waker,
    proto::files::v1::{Consistency, Origin, ServedFrom},
};

use super::{
    Global, Wake, When,
    out::{Format, Out},
    progress::Progress,
    settings::Settings,
    wake::CommandWaker,
};

/// What a command works with.
pub struct Context {
    pub files: FilesClient,
    pub host: HostClient,
    /// The way to wake a workspace that `files` has too.
    pub waker: Option<Arc<dyn Waker>>,
    pub out: Out,
    pub format: Format,
    pub colour: bool,
    quiet: bool,
}

impl Context {
    pub fn new(global: Global, settings: Settings) -> Self {
        let options = Options {
            timeout: settings.timeout,
            token: settings.token,
            generation: global.generation,
            ..Options::default()
        };
        let host = HostClient::new(settings.host_endpoint.channel_with(&settings.trust)).with_options(options.clone());
        let mut files = FilesClient::new(settings.endpoint.channel_with(&settings.trust)).with_options(options);
        let waker: Option<Arc<dyn Waker>> = match (global.wake_command, global.wake) {
            (Some(command), _) => Some(Arc::new(CommandWaker::new(command))),
            (None, Some(Wake::Host)) => Some(Arc::new(HostWaker::new(host.clone()))),
            (None, None) => None,
        };
        if let Some(waker) = &waker {
            files = files.with_waker(waker.clone());
        }
        let out = Out::new();
        let colour = match global.color {
            When::Always => true,
            When::Never => false,
            // https://no-color.org: present and not empty.
            When::Auto => out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        let format = match (global.json, global.jsonl) {
            (true, _) => Format::Json,
            (_, true) => Format::JsonLines,
            _ => Format::Text,
        };
        Self { files, host, waker, out, format, colour, quiet: global.quiet }
    }

    /// A word beside the data, on standard error.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            self.say(text);
        }
    }

    /// What whoever started the command must learn, on standard error.
    pub fn say(&self, text: &str) {
        // A word that nobody can read is not worth a failure.
        let _ = writeln!(std::io::stderr(), "dormouse: {text}");
    }

    /// A line on standard error while so many bytes are on their way.
    pub fn progress(&self, total: Option<u64>) -> Progress {
        Progress::new(self.quiet, total)
    }

    /// Says where an answer came from, where that is worth a word. Under JSON the object says it.
    pub fn note_origin(&self, origin: &Origin) {
        if self.format != Format::Text || origin.served_from() != ServedFrom::Disk {
            return;
        }
        match origin.consistency() {
            Consistency::Crash => self.note("served from disk, as after a power cut: late writes may be missing"),
            _ => self.note("served from disk"),
        }
    }

    /// Whether the answer is one object (or one line) of JSON.
    pub fn json(&self) -> bool {
        self.format != Format::Text
    }
}
