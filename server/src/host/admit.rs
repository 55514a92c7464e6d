//! Permits: how many calls the host takes at once, and how many one workspace may have of them. A permit is a guard: the
//! room is free again when the last holder of it is gone, which is at the end of the answer, or of the change.
//!
//! It refuses rather than queues: a caller that waits in a queue holds a stream that another could use.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::watch;

use crate::host::error::HostFault;

/// The host's room for calls.
#[derive(Debug, Clone)]
pub struct Admission {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    calls_max: usize,
    workspace_calls_max: usize,
    draining: AtomicBool,
    calls: watch::Sender<usize>,
    workspaces: Mutex<HashMap<String, usize>>,
}

/// One call's room.
#[derive(Debug)]
pub struct Permit {
    inner: Arc<Inner>,
}

/// One call's room in a workspace.
#[derive(Debug)]
pub struct WorkspacePermit {
    inner: Arc<Inner>,
    workspace: String,
}

impl Admission {
    /// Room for so many calls at once; a workspace gets half of it, and at least one.
    pub fn new(calls_max: usize) -> Self {
        let inner = Inner {
            calls_max,
            workspace_calls_max: (calls_max / 2).max(1),
            draining: AtomicBool::new(false),
            calls: watch::Sender::new(0),
            workspaces: Mutex::new(HashMap::new()),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Room for one call.
    ///
    /// # Errors
    /// `Draining`, `Overloaded`.
    pub fn call(&self) -> Result<Permit, HostFault> {
        let mut room = false;
        self.inner.calls.send_if_modified(|calls| {
            room = *calls < self.inner.calls_max;
            *calls += usize::from(room);
            room
        });
        if !room {
            return Err(HostFault::Overloaded { what: "calls at once" });
        }
        let permit = Permit { inner: self.inner.clone() };
        // Asked after the count was raised: a drain that sees no call left can be sure that none is about to begin.
        if self.is_draining() {
            return Err(HostFault::Draining);
        }
        Ok(permit)
    }

    /// Room for one call on this workspace.
    ///
    /// # Errors
    /// `Overloaded`.
    pub fn workspace(&self, workspace: &str) -> Result<WorkspacePermit, HostFault> {
        let mut workspaces = self.inner.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = workspaces.entry(workspace.to_owned()).or_insert(0);
        if *calls >= self.inner.workspace_calls_max {
            return Err(HostFault::Overloaded { what: "calls at once on this workspace" });
        }
        *calls += 1;
        Ok(WorkspacePermit { inner: self.inner.clone(), workspace: workspace.to_owned() })
    }

    /// From now on no call is taken.
    pub fn drain(&self) {
        self.inner.draining.store(true, Ordering::SeqCst);
    }

    /// Calls are taken again.
    pub fn undrain(&self) {
        self.inner.draining.store(false, Ordering::SeqCst);
    }

    /// Whether no call is taken.
    pub fn is_draining(&self) -> bool {
        self.inner.draining.load(Ordering::SeqCst)
    }

    /// Calls under way.
    pub fn calls(&self) -> usize {
        *self.inner.calls.borrow()
    }

    /// Waits until no call is under way.
    pub async fn idle(&self) {
        let mut calls = self.inner.calls.subscribe();
        // The sender lives in `self`, so waiting cannot end in an error.
        let _ = calls.wait_for(|calls| *calls == 0).await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.inner.calls.send_modify(|calls| *calls = calls.saturating_sub(1));
    }
}

impl Drop for WorkspacePermit {
    fn drop(&mut self) {
        let mut workspaces = self.inner.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(calls) = workspaces.get_mut(&self.workspace) {
            *calls = calls.saturating_sub(1);
            if *calls == 0 {
                workspaces.remove(&self.workspace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_so_many_and_a_workspace_half() {
        let admission = Admission::new(4);
        let permits: Vec<Permit> = (0..4).map(|_| admission.call().unwrap()).collect();
        assert!(matches!(admission.call(), Err(HostFault::Overloaded { .. })));
        drop(permits);
        assert_eq!(admission.calls(), 0);
        let first = admission.workspace("a").unwrap();
        let _second = admission.workspace("a").unwrap();
        assert!(matches!(admission.workspace("a"), Err(HostFault::Overloaded { .. })));
        assert!(admission.workspace("b").is_ok());
        drop(first);
        assert!(admission.workspace("a").is_ok());
    }

    #[tokio::test]
    async fn a_drain_refuses_and_waits_for_the_last_call() {
        let admission = Admission::new(4);
        let permit = admission.call().unwrap();
        admission.drain();
        assert!(matches!(admission.call(), Err(HostFault::Draining)));
        let idle = tokio::spawn({
            let admission = admission.clone();
            async move { admission.idle().await }
        });
        assert_eq!(admission.calls(), 1);
        drop(permit);
        idle.await.unwrap();
        admission.undrain();
        assert!(admission.call().is_ok());
    }
}
