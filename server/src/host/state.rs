//! The state machine of one workspace, and what a transition's generation means. Pure: nothing is looked at or done here.
//!
//! ```text
//!                 Open (freeze failed, or its time-out passed)
//!         ┌───────────────────────────────────┐
//!         ▼                                   │
//! ┌──► running ───────────Quiesce────────► quiescing
//! │        │                                   │
//! Open     │ Seal (stopped without a freeze,   │ Seal
//! │        │ or crashed)                       ▼
//! │        └─────────────────────► suspended | parked ◄──┐
//! │                                    │                 │ Seal (the resume failed)
//! └──────────── resuming ◄──Unseal─────┘                 │
//!                   └────────────────────────────────────┘
//! quarantined: only the agent moves a workspace here, on proof of a writer without Unseal; Unseal leads out
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host::error::HostFault;

/// Where a workspace is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its files are served from the running workspace.
    Running,
    /// On its way to rest: reads go on, changes wait.
    Quiescing,
    /// In memory with its processors stopped; reads come from the disk.
    Parked,
    /// Stopped; reads come from the disk.
    Suspended,
    /// On its way back: nothing is served until it runs.
    Resuming,
    /// Something wrote its disk without an Unseal.
    Quarantined,
}

impl State {
    /// As errors and JSON carry it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Quiescing => "quiescing",
            Self::Parked => "parked",
            Self::Suspended => "suspended",
            Self::Resuming => "resuming",
            Self::Quarantined => "quarantined",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Whether a stopped machine stays in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rest {
    /// It does.
    Parked,
    /// It does not.
    Suspended,
}

impl Rest {
    /// The state of a workspace at such a rest.
    pub fn state(self) -> State {
        match self {
            Self::Parked => State::Parked,
            Self::Suspended => State::Suspended,
        }
    }
}

/// What a caller can ask of a workspace's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transition {
    /// Running to quiescing.
    Quiesce,
    /// To suspended or parked, once the machine has stopped.
    Seal(Rest),
    /// To resuming: the fence before anything may write the disk.
    Unseal,
    /// To running, once the machine runs.
    Open,
    /// Quiesce and Seal in one.
    Suspend(Rest),
    /// Unseal and Open in one.
    Resume,
}

impl Transition {
    /// The state it ends in.
    pub fn target(self) -> State {
        match self {
            Self::Quiesce => State::Quiescing,
            Self::Seal(rest) | Self::Suspend(rest) => rest.state(),
            Self::Unseal => State::Resuming,
            Self::Open | Self::Resume => State::Running,
        }
    }

    /// The states it leads out of.
    pub fn sources(self) -> &'static [State] {
        use State::{Parked, Quarantined, Quiescing, Resuming, Running, Suspended};
        match self {
            Self::Quiesce => &[Running],
            Self::Seal(_) | Self::Suspend(_) => &[Running, Quiescing, Resuming],
            Self::Unseal => &[Suspended, Parked, Quarantined],
            Self::Open => &[Resuming, Quiescing],
            Self::Resume => &[Suspended, Parked, Quarantined, Resuming, Quiescing],
        }
    }

    /// Whether it leads out of `state`; else the states that it needs, joined by `|`.
    ///
    /// # Errors
    /// The states that the transition is taken in.
    pub fn check(self, state: State) -> Result<(), String> {
        if self.sources().contains(&state) {
            return Ok(());
        }
        let names: Vec<&str> = self.sources().iter().map(|source| source.name()).collect();
        Err(names.join("|"))
    }
}

/// The last transition that a workspace's record holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastCall {
    /// Which one.
    pub transition: Transition,
    /// SHA-256 of its arguments, generation and name left out, in hex.
    pub arguments: String,
    /// Whether it ended; an unfinished one is carried on by its replay.
    pub done: bool,
}

/// What is to be done with a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is new: do it under this generation.
    Begin(i64),
    /// It began before and did not end: do what is left of it.
    CarryOn(i64),
    /// It was done before, or its target state holds already: answer with what the record says.
    Answer,
}

/// The refusal of a generation below zero.
pub fn negative_generation() -> HostFault {
    HostFault::invalid("generation", "the generation is negative; send 0 for the current one plus one")
}

/// Judges a transition by its generation and the state, as the comment of HostService says.
///
/// # Errors
/// `Invalid` for a negative generation, `StaleGeneration`, `WrongState`.
pub fn decide(
    workspace: &str,
    state: State,
    current: i64,
    last: Option<&LastCall>,
    transition: Transition,
    arguments: &str,
    generation: i64,
) -> Result<Decision, HostFault> {
    let wrong_state = |wanted| HostFault::WrongState { workspace: workspace.to_owned(), state, wanted };
    let stale = || HostFault::StaleGeneration { workspace: workspace.to_owned(), generation: current };
    match generation {
        ..0 => Err(negative_generation()),
        0 if state == transition.target() => Ok(Decision::Answer),
        0 => {
            transition.check(state).map_err(wrong_state)?;
            Ok(Decision::Begin(current.checked_add(1).ok_or_else(stale)?))
        }
        _ if generation > current => {
            transition.check(state).map_err(wrong_state)?;
            Ok(Decision::Begin(generation))
        }
        _ if generation == current => match last {
            Some(last) if last.transition == transition && last.arguments == arguments => {
                if last.done {
                    Ok(Decision::Answer)
                } else {
                    Ok(Decision::CarryOn(generation))
                }
            }
            _ => Err(stale()),
        },
        _ => Err(stale()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 6] =
        [State::Running, State::Quiescing, State::Parked, State::Suspended, State::Resuming, State::Quarantined];

    #[track_caller]
    fn check(transition: Transition, target: State, taken_in: &[State]) {
        assert_eq!(transition.target(), target);
        for state in STATES {
            assert_eq!(transition.check(state).is_ok(), taken_in.contains(&state), "{transition:?} in {state}");
        }
    }

    #[test]
    fn each_transition_leads_from_and_to_the_states_of_the_drawing() {
        use State::*;
        check(Transition::Quiesce, Quiescing, &[Running]);
        check(Transition::Seal(Rest::Suspended), Suspended, &[Running, Quiescing, Resuming]);
        check(Transition::Seal(Rest::Parked), Parked, &[Running, Quiescing, Resuming]);
        check(Transition::Unseal, Resuming, &[Suspended, Parked, Quarantined]);
        check(Transition::Open, Running, &[Resuming, Quiescing]);
        check(Transition::Suspend(Rest::Suspended), Suspended, &[Running, Quiescing, Resuming]);
        check(Transition::Resume, Running, &[Suspended, Parked, Quarantined, Resuming, Quiescing]);
    }

    #[test]
    fn a_refusal_names_the_states_that_are_wanted() {
        assert_eq!(Transition::Unseal.check(State::Running), Err("suspended|parked|quarantined".to_owned()));
    }

    #[track_caller]
    fn judge(
        state: State,
        done: Option<bool>,
        transition: Transition,
        generation: i64,
        expect: Result<Decision, &str>,
    ) {
        let last = done.map(|done| LastCall { transition: Transition::Unseal, arguments: "a".to_owned(), done });
        let found = decide("w", state, 5, last.as_ref(), transition, "a", generation);
        let found = found.map_err(|fault| match fault {
            HostFault::StaleGeneration { generation: 5, .. } => "stale",
            HostFault::WrongState { .. } => "wrong state",
            HostFault::Invalid { .. } => "invalid",
            _ => "another",
        });
        assert_eq!(found, expect);
    }

    #[test]
    fn a_generation_begins_replays_or_is_stale() {
        use Decision::*;
        use Transition::*;
        let resuming = State::Resuming;
        judge(resuming, Some(true), Open, 6, Ok(Begin(6)));
        judge(resuming, Some(true), Open, 60, Ok(Begin(60)));
        judge(resuming, Some(true), Open, 0, Ok(Begin(6)));
        judge(resuming, Some(true), Unseal, 5, Ok(Answer));
        judge(resuming, Some(false), Unseal, 5, Ok(CarryOn(5)));
        judge(resuming, Some(true), Unseal, 0, Ok(Answer));
        judge(resuming, Some(true), Open, 5, Err("stale"));
        judge(resuming, Some(true), Unseal, 4, Err("stale"));
        judge(resuming, None, Unseal, 5, Err("stale"));
        judge(State::Running, Some(true), Unseal, 6, Err("wrong state"));
        judge(State::Running, Some(true), Unseal, 0, Err("wrong state"));
        judge(resuming, None, Unseal, -1, Err("invalid"));
        let other = LastCall { transition: Unseal, arguments: "b".to_owned(), done: true };
        assert!(matches!(
            decide("w", resuming, 5, Some(&other), Unseal, "a", 5),
            Err(HostFault::StaleGeneration { .. })
        ));
    }
}
