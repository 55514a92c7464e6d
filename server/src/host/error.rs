//! Why the host refuses: which workspace, which state, which generation. Each variant is one `ErrorReason` of
//! files.proto; only `rpc/status.rs` turns one into a status.

use std::{io, time::Duration};

use dormouse_files::Fault;

use crate::host::state::State;

/// The failure of a call before, or beside, its files.
#[derive(Debug, thiserror::Error)]
pub enum HostFault {
    /// No workspace of this name is here.
    #[error("workspace {workspace} is not on this host; ask the control plane where it is")]
    NotFound {
        /// The name.
        workspace: String,
    },
    /// The call needs a running workspace.
    #[error("workspace {workspace} is {state}; wake it, then call again")]
    NotRunning {
        /// The name.
        workspace: String,
        /// What it is.
        state: State,
    },
    /// The workspace is between two states.
    #[error("workspace {workspace} is {state}; nothing was done, try again")]
    InTransition {
        /// The name.
        workspace: String,
        /// What it is.
        state: State,
    },
    /// Its disk cannot answer.
    #[error("the disk of workspace {workspace} cannot answer: {why}; wake it, then read again")]
    OfflineUnavailable {
        /// The name.
        workspace: String,
        /// Why.
        why: String,
    },
    /// Its disk moved under the read, or is about to.
    #[error("the disk of workspace {workspace} changed during the read; try again")]
    OfflineChanged {
        /// The name.
        workspace: String,
    },
    /// The directory that it is made of is not there, or cannot be opened.
    #[error("the directory of workspace {workspace} is not served: {why}")]
    DirectoryGone {
        /// The name.
        workspace: String,
        /// What the system says, and what to do.
        why: String,
    },
    /// Its disk does not parse.
    #[error("the disk of workspace {workspace} is corrupt: {what}")]
    Corrupt {
        /// The name.
        workspace: String,
        /// The structure and its place.
        what: String,
    },
    /// Something wrote the disk without an Unseal.
    #[error("workspace {workspace} is quarantined: {note}; an operator must look")]
    Quarantined {
        /// The name.
        workspace: String,
        /// Why.
        note: String,
    },
    /// It runs, and its own agent does not answer.
    #[error("workspace {workspace} runs, but its own agent does not answer; try again")]
    GuestUnreachable {
        /// The name.
        workspace: String,
    },
    /// This host cannot do that at all.
    #[error("this host does not offer {feature}; it needs an upgrade, or another setting")]
    FeatureUnavailable {
        /// Such as `file_search`.
        feature: String,
    },
    /// The caller's generation is not the one that this call needs.
    #[error("workspace {workspace} is at generation {generation} here; the call names another one")]
    StaleGeneration {
        /// The name.
        workspace: String,
        /// The current one.
        generation: i64,
    },
    /// The transition does not lead out of this state.
    #[error("workspace {workspace} is {state}, and the call needs it {wanted}")]
    WrongState {
        /// The name.
        workspace: String,
        /// What it is.
        state: State,
        /// In which states the call is taken, joined by `|`.
        wanted: String,
    },
    /// The proof of a still disk was demanded and does not hold.
    #[error("the disk of workspace {workspace} is not proved still: {what}")]
    NotQuiesced {
        /// The name.
        workspace: String,
        /// `needs_recovery`, `disk_locked`, `mtime`, or what the disk reader says.
        what: String,
    },
    /// The name is taken by another spec.
    #[error("workspace {workspace} is registered with another spec; release it first")]
    AlreadyExists {
        /// The name.
        workspace: String,
    },
    /// No room for this call now.
    #[error("the host is at its limit of {what}; nothing was done, try again")]
    Overloaded {
        /// What is at its limit.
        what: &'static str,
    },
    /// The host is shutting down.
    #[error("the host is draining and takes no new calls; nothing was done, try another host or again later")]
    Draining,
    /// The host's own record cannot be kept, so nothing was published.
    #[error("the state directory cannot hold the record of workspace {workspace}; nothing was changed")]
    Record {
        /// The name.
        workspace: String,
        /// From the system.
        #[source]
        source: io::Error,
    },
    /// The host's own command around a suspend or a resume failed.
    #[error("the host's own command for workspace {workspace} failed; its operator must look, then call again")]
    Hook {
        /// The name.
        workspace: String,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// The machine's own agent answers, but did not do what was asked.
    #[error("the agent of workspace {workspace} failed: {what}")]
    GuestFailed {
        /// The name.
        workspace: String,
        /// Its words, or ours.
        what: String,
    },
    /// The caller did not show the token that this agent was given.
    #[error("the call carries no token, or another one; the guest_token of the workspace's spec is sent")]
    CredentialsRequired,
    /// A stream of a caller's stood still for too long.
    #[error("no message came for {} s; nothing was written, send it again without such a pause", .idle.as_secs())]
    CallerSilent {
        /// The bound.
        idle: Duration,
    },
    /// Changes under way did not end in time.
    #[error("workspace {workspace} did not come to rest in time; it is running again")]
    QuiesceTimeout {
        /// The name.
        workspace: String,
    },
    /// The request makes no sense.
    #[error("{field}: {message}")]
    Invalid {
        /// The request's field.
        field: String,
        /// What is wrong and what to do.
        message: String,
    },
}

impl HostFault {
    /// A request's field that makes no sense.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), message: message.into() }
    }
}

/// What a machine's own agent refused, as far as its words are believed: a reason of the contract, and texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestRefusal {
    /// One of `ErrorReason`'s names, without its prefix.
    pub reason: &'static str,
    /// For people; of any length.
    pub message: String,
    /// Keys of the contract, with the agent's values.
    pub metadata: Vec<(&'static str, String)>,
    /// The field to blame, where it names one.
    pub field: Option<String>,
}

impl std::fmt::Display for GuestRefusal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.message)
    }
}

/// Everything that a call can fail with before it is a status.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Of the files.
    #[error(transparent)]
    Files(#[from] Fault),
    /// Of the host.
    #[error(transparent)]
    Host(#[from] HostFault),
    /// Of a running machine's own agent.
    #[error("{0}")]
    Guest(GuestRefusal),
}
