//! Who watches the workspaces of this host. A watcher has one place for each workspace, so a slow one gets only the
//! latest of each and never holds more than there are workspaces.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::Notify;

use crate::host::{error::HostFault, store::Moment, workspace::View};

/// Most watchers at once.
const WATCHER_COUNT_MAX: usize = 64;

/// What a watcher is told of one workspace.
#[derive(Debug, Clone)]
pub enum Change {
    /// It is so now.
    Now(Box<View>),
    /// It was released.
    Released {
        /// Its name.
        name: String,
        /// Its last generation.
        generation: i64,
        /// When.
        time: Moment,
    },
}

/// All watchers.
#[derive(Debug, Default)]
pub struct Watchers {
    list: Mutex<Vec<Weak<Watcher>>>,
}

/// One watcher.
#[derive(Debug)]
pub struct Watcher {
    pending: Mutex<BTreeMap<String, Change>>,
    more: Notify,
}

impl Watchers {
    /// A new watcher, told of all changes from now on.
    ///
    /// # Errors
    /// `Overloaded` beyond the bound.
    pub fn watch(&self) -> Result<Arc<Watcher>, HostFault> {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|watcher| watcher.strong_count() > 0);
        if list.len() >= WATCHER_COUNT_MAX {
            return Err(HostFault::Overloaded { what: "watchers" });
        }
        let watcher = Arc::new(Watcher { pending: Mutex::new(BTreeMap::new()), more: Notify::new() });
        list.push(Arc::downgrade(&watcher));
        Ok(watcher)
    }

    /// Tells every watcher; what one has not taken yet of this workspace is replaced.
    pub fn tell(&self, name: &str, change: &Change) {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        for watcher in list.iter().filter_map(Weak::upgrade) {
            watcher.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), change.clone());
            watcher.more.notify_one();
        }
    }
}

impl Watcher {
    /// The next change, in the order of names among those that wait.
    pub async fn next(&self) -> Change {
        loop {
            let first = self.pending.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
            if let Some((_, change)) = first {
                return change;
            }
            self.more.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released(generation: i64) -> Change {
        Change::Released { name: "a".to_owned(), generation, time: Moment::default() }
    }

    #[tokio::test]
    async fn a_slow_watcher_gets_only_the_latest() {
        let watchers = Watchers::default();
        let watcher = watchers.watch().unwrap();
        for generation in 1..=3 {
            watchers.tell("a", &released(generation));
        }
        watchers.tell("b", &released(9));
        assert!(matches!(watcher.next().await, Change::Released { generation: 3, .. }));
        assert!(matches!(watcher.next().await, Change::Released { generation: 9, .. }));
        assert!(watcher.pending.lock().unwrap().is_empty());
    }

    #[test]
    fn watchers_are_bounded_and_leave_by_being_dropped() {
        let watchers = Watchers::default();
        let held: Vec<_> = (0..WATCHER_COUNT_MAX).map(|_| watchers.watch().unwrap()).collect();
        assert!(matches!(watchers.watch(), Err(HostFault::Overloaded { .. })));
        drop(held);
        assert!(watchers.watch().is_ok());
    }
}
