//! Whether a failed call is made again, and when.
//!
//! Pure: it is told what failed, how often and for how long, and a random number; it knows no clock and does no I/O. One
//! table holds the rules, and what a repetition may do comes from the contract's own `idempotency_level`.
//!
//! | the failure | then |
//! |---|---|
//! | the host says never (feature, revision, edit, policy, shape …) | stop |
//! | `OFFLINE_CHANGED`, `WORKSPACE_IN_TRANSITION` | again until the deadline, or 30 s; gaps of at most 1 s |
//! | `WORKSPACE_NOT_RUNNING`, `OFFLINE_UNAVAILABLE`, `OFFLINE_BUDGET` | wake once, then again; else stop |
//! | any other `UNAVAILABLE`, a lost connection, an attempt's own time-out, or a host's `RetryInfo` | back off, at most 5 attempts |

use std::time::Duration;

use dormouse_proto::files::v1::ErrorReason;
use tonic::Code;

use crate::{
    error::{Error, Kind},
    method::Effect,
};

/// The numbers of the rules.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Before the second attempt; doubled before each further one.
    pub backoff: Duration,
    /// No gap of the back-off is longer. A host's own wish may be.
    pub backoff_max: Duration,
    /// Attempts in all, the first one included. 1 turns retries off, but for a wake and a transition.
    pub attempts_max: u32,
    /// How long a workspace's transition is waited out when the caller has no deadline.
    pub transition: Duration,
    /// The longest gap while a transition is waited out.
    pub transition_gap_max: Duration,
    /// How long a waker may take when the caller has no deadline.
    pub wake: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
            attempts_max: 5,
            transition: Duration::from_secs(30),
            transition_gap_max: Duration::from_secs(1),
            wake: Duration::from_secs(60),
        }
    }
}

/// What is known about a call when one of its attempts has failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// How many attempts have failed since the call began or last made progress; at least 1.
    pub failed: u32,
    /// Since the call began or last made progress.
    pub elapsed: Duration,
    /// What is left of the caller's deadline; nothing where the caller set none.
    pub remaining: Option<Duration>,
    /// Whether the caller gave a way to wake the workspace that has not been used in this call.
    pub can_wake: bool,
    /// Evenly spread over 0 to 1.
    pub random: f64,
}

/// What to do about a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Make another attempt after this long.
    Wait(Duration),
    /// Wake the workspace, then make another attempt at once.
    Wake,
    /// Give the error to the caller.
    Stop,
}

/// The rule that an error falls under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Never,
    Transition,
    Wake,
    BackOff,
}

/// Decides about a call whose repetition has `effect`.
pub fn decide(policy: &Policy, effect: Effect, error: &Error, attempt: &Attempt) -> Step {
    if effect == Effect::Unknown || attempt.remaining.is_some_and(|left| left.is_zero()) {
        return Step::Stop;
    }
    let wait = match rule(error) {
        Rule::Never => return Step::Stop,
        Rule::Wake => return if attempt.can_wake { Step::Wake } else { Step::Stop },
        Rule::Transition => {
            let gap = error.retry_after().unwrap_or_else(|| backoff(policy, attempt)).min(policy.transition_gap_max);
            if attempt.remaining.is_none() && attempt.elapsed.saturating_add(gap) > policy.transition {
                return Step::Stop;
            }
            gap
        }
        Rule::BackOff if attempt.failed >= policy.attempts_max => return Step::Stop,
        Rule::BackOff => error.retry_after().unwrap_or_else(|| backoff(policy, attempt)),
    };
    // An attempt that could only begin when the caller has given up would change the answer to a time-out.
    if attempt.remaining.is_some_and(|left| wait >= left) { Step::Stop } else { Step::Wait(wait) }
}

fn rule(error: &Error) -> Rule {
    match error.reason() {
        Some(ErrorReason::OfflineChanged | ErrorReason::WorkspaceInTransition) => Rule::Transition,
        Some(ErrorReason::WorkspaceNotRunning | ErrorReason::OfflineUnavailable | ErrorReason::OfflineBudget) => {
            Rule::Wake
        }
        // The caller's own deadline; an attempt's time-out comes without a reason, or with this one and time left.
        Some(ErrorReason::DeadlineExceeded) => Rule::BackOff,
        _ => match error.kind() {
            Kind::DeadlineExceeded => Rule::BackOff,
            Kind::HostFeatureUnavailable { .. }
            | Kind::RevisionMismatch { .. }
            | Kind::EditNoMatch { .. }
            | Kind::EditNotUnique { .. }
            | Kind::PolicyDenied
            | Kind::Unauthenticated
            | Kind::NotFound
            | Kind::InvalidRequest { .. }
            | Kind::LimitExceeded { .. }
            | Kind::BrokenAnswer
            | Kind::ChangedWhileRead
            | Kind::Source => Rule::Never,
            _ if error.retryable() && (error.code() == Code::Unavailable || error.retry_after().is_some()) => {
                Rule::BackOff
            }
            _ => Rule::Never,
        },
    }
}

/// `backoff * 2^(failed - 1)`, bounded, spread by a fifth to both sides (gRPC proposal A6).
fn backoff(policy: &Policy, attempt: &Attempt) -> Duration {
    let doublings = attempt.failed.saturating_sub(1).min(20);
    let gap = policy.backoff.saturating_mul(1 << doublings).min(policy.backoff_max);
    gap.mul_f64(0.8 + 0.4 * attempt.random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use dormouse_proto::ERROR_DOMAIN;
    use tonic::Status;
    use tonic_types::{ErrorDetails, StatusExt};

    use super::*;
    use crate::method::Method;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn error(code: Code, reason: &str, retry_after: Option<Duration>) -> Error {
        let mut details = ErrorDetails::new();
        if !reason.is_empty() {
            details.set_error_info(reason, ERROR_DOMAIN, HashMap::<String, String>::new());
        }
        if retry_after.is_some() {
            details.set_retry_info(retry_after);
        }
        Error::from_status(Method::PATCH, &Status::with_error_details(code, "", details))
    }

    /// The first failure of a call with a waker, no deadline, and the middle of the jitter.
    fn first() -> Attempt {
        Attempt { failed: 1, elapsed: Duration::ZERO, remaining: None, can_wake: true, random: 0.5 }
    }

    fn check(error: &Error, attempt: Attempt, expect: Step) {
        for effect in [Effect::Safe, Effect::Idempotent] {
            assert_eq!(decide(&Policy::default(), effect, error, &attempt), expect, "{effect:?} {error:?} {attempt:?}");
        }
        assert_eq!(decide(&Policy::default(), Effect::Unknown, error, &attempt), Step::Stop);
    }

    #[test]
    fn unavailable_backs_off_by_doubling_and_at_most_five_attempts() {
        let down = error(Code::Unavailable, "", None);
        for (failed, gap) in [(1, 100), (2, 200), (3, 400), (4, 800)] {
            check(&down, Attempt { failed, ..first() }, Step::Wait(MS(gap)));
        }
        check(&down, Attempt { failed: 5, ..first() }, Step::Stop);
        for reason in ["GUEST_UNREACHABLE", "HOST_OVERLOADED", "HOST_DRAINING"] {
            check(&error(Code::Unavailable, reason, None), first(), Step::Wait(MS(100)));
        }
    }

    #[test]
    fn jitter_spreads_a_fifth_to_both_sides() {
        let down = error(Code::Unavailable, "", None);
        check(&down, Attempt { random: 0.0, ..first() }, Step::Wait(MS(80)));
        check(&down, Attempt { random: 1.0, ..first() }, Step::Wait(MS(120)));
        check(&down, Attempt { random: f64::INFINITY, ..first() }, Step::Wait(MS(120)));
    }

    #[test]
    fn the_host_s_wish_wins_over_the_back_off() {
        let busy = error(Code::Unavailable, "HOST_OVERLOADED", Some(MS(1_700)));
        check(&busy, Attempt { failed: 3, ..first() }, Step::Wait(MS(1_700)));
        check(&busy, Attempt { failed: 5, ..first() }, Step::Stop);
        // A retryable refusal under another code: its RetryInfo says so.
        check(&error(Code::Aborted, "BUSY_WRITER", Some(MS(50))), first(), Step::Wait(MS(50)));
    }

    #[test]
    fn the_caller_s_deadline_ends_it() {
        let down = error(Code::Unavailable, "", None);
        check(&down, Attempt { remaining: Some(MS(101)), ..first() }, Step::Wait(MS(100)));
        check(&down, Attempt { remaining: Some(MS(100)), ..first() }, Step::Stop);
        check(&down, Attempt { remaining: Some(MS(0)), ..first() }, Step::Stop);
        let asleep = error(Code::FailedPrecondition, "WORKSPACE_NOT_RUNNING", None);
        check(&asleep, Attempt { remaining: Some(MS(0)), ..first() }, Step::Stop);
    }

    #[test]
    fn an_attempt_s_time_out_is_tried_again_while_there_is_time() {
        let late = error(Code::DeadlineExceeded, "", None);
        check(&late, Attempt { remaining: Some(MS(5_000)), ..first() }, Step::Wait(MS(100)));
        check(&late, Attempt { remaining: Some(MS(0)), ..first() }, Step::Stop);
        check(&late, Attempt { failed: 5, ..first() }, Step::Stop);
    }

    #[test]
    fn a_transition_is_waited_out_in_short_gaps() {
        for reason in ["OFFLINE_CHANGED", "WORKSPACE_IN_TRANSITION"] {
            let moving = error(Code::Unavailable, reason, None);
            check(&moving, first(), Step::Wait(MS(100)));
            check(&moving, Attempt { failed: 40, elapsed: MS(20_000), ..first() }, Step::Wait(MS(1_000)));
            check(&moving, Attempt { failed: 40, elapsed: MS(29_500), ..first() }, Step::Stop);
            // With a deadline, that alone decides.
            let patient = Attempt { failed: 90, elapsed: MS(60_000), remaining: Some(MS(1_500)), ..first() };
            check(&moving, patient.clone(), Step::Wait(MS(1_000)));
            check(&moving, Attempt { remaining: Some(MS(900)), ..patient }, Step::Stop);
            check(&error(Code::Unavailable, reason, Some(MS(9_000))), first(), Step::Wait(MS(1_000)));
        }
    }

    #[test]
    fn a_workspace_that_does_not_run_is_woken_once() {
        for reason in ["WORKSPACE_NOT_RUNNING", "OFFLINE_UNAVAILABLE", "OFFLINE_BUDGET"] {
            let asleep = error(Code::FailedPrecondition, reason, None);
            check(&asleep, first(), Step::Wake);
            check(&asleep, Attempt { failed: 9, ..first() }, Step::Wake);
            check(&asleep, Attempt { can_wake: false, ..first() }, Step::Stop);
        }
    }

    #[test]
    fn a_refusal_that_would_recur_is_never_sent_again() {
        for (code, reason) in [
            (Code::Unimplemented, ""),
            (Code::Unimplemented, "HOST_FEATURE_UNAVAILABLE"),
            (Code::Aborted, "REVISION_MISMATCH"),
            (Code::FailedPrecondition, "EDIT_NO_MATCH"),
            (Code::FailedPrecondition, "EDIT_NOT_UNIQUE"),
            (Code::PermissionDenied, "WRITE_POLICY_DENIED"),
            (Code::PermissionDenied, "WORKSPACE_ACCESS_DENIED"),
            (Code::Unauthenticated, "CREDENTIALS_REQUIRED"),
            (Code::NotFound, "FILE_NOT_FOUND"),
            (Code::NotFound, "WORKSPACE_NOT_FOUND"),
            (Code::InvalidArgument, "INVALID_REQUEST"),
            (Code::InvalidArgument, "IDEMPOTENCY_KEY_REUSED"),
            (Code::FailedPrecondition, "WORKSPACE_QUARANTINED"),
            (Code::ResourceExhausted, "DISK_FULL"),
            (Code::Unknown, "OUTCOME_UNKNOWN"),
            (Code::Internal, "INTERNAL"),
            (Code::DataLoss, "DISK_CORRUPT"),
            (Code::Internal, ""),
            (Code::Cancelled, ""),
            (Code::ResourceExhausted, ""),
        ] {
            check(&error(code, reason, None), first(), Step::Stop);
        }
    }

    #[test]
    fn nothing_overflows_at_the_ends() {
        let down = error(Code::Unavailable, "WORKSPACE_IN_TRANSITION", Some(Duration::MAX));
        let long = Attempt { failed: u32::MAX, elapsed: Duration::MAX, remaining: Some(Duration::MAX), ..first() };
        check(&down, long.clone(), Step::Wait(MS(1_000)));
        let plain = error(Code::Unavailable, "", None);
        let endless = Policy { attempts_max: u32::MAX, ..Policy::default() };
        let step = decide(&endless, Effect::Safe, &plain, &Attempt { failed: u32::MAX - 1, ..long });
        assert_eq!(step, Step::Wait(MS(5_000)));
    }
}
