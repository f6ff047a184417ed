//! The releases of a lock, and the holds of a lock that is not reentrant.

use std::sync::{Arc, Weak};

use super::CuratorError;
use crate::client::{HoldState, HoldWatch, LockGuard, SetGuard};
use crate::model::FencingToken;
use crate::mutex::Mutex;

/// The releases of holds, each with a key, such as the task that releases. The lock counts as held until the cluster
/// has answered the release, even if the call of the release has ended before.
#[derive(Debug)]
pub(super) struct Releases<K>(Vec<Release<K>>);

#[derive(Debug)]
struct Release<K> {
    key: K,
    hold: HoldWatch,
    /// Has no strong reference once the call has ended.
    call: Weak<()>,
}

/// The call of a release, which has ended once this is dropped.
pub(super) type ReleaseCall = Arc<()>;

impl<K> Release<K> {
    /// Whether the release continues without its call.
    fn is_unanswered(&self) -> bool {
        self.call.strong_count() == 0 && self.hold.is_changing()
    }

    fn is_pending(&self) -> bool {
        self.call.strong_count() != 0 || self.hold.is_changing()
    }
}

impl<K> Default for Releases<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Clone> Releases<K> {
    /// Records that a call releases these holds. The caller begins the release before it drops the call.
    pub(super) fn begin(&mut self, key: &K, holds: impl IntoIterator<Item = HoldWatch>) -> ReleaseCall {
        self.0.retain(Release::is_pending);
        let call = ReleaseCall::default();
        let release = |hold| Release { key: key.clone(), hold, call: Arc::downgrade(&call) };
        self.0.extend(holds.into_iter().map(release));
        call
    }

    /// Ends the call of a release, and forgets the releases that are answered.
    pub(super) fn end(&mut self, call: ReleaseCall) {
        drop(call);
        self.0.retain(Release::is_pending);
    }

    /// Whether a release for such a key has begun and is not answered.
    pub(super) fn is_pending(&self, is_meant: impl Fn(&K) -> bool) -> bool {
        self.0.iter().any(|release| is_meant(&release.key) && release.is_pending())
    }

    /// Whether a release for such a key continues without its call.
    pub(super) fn is_unanswered(&self, is_meant: impl Fn(&K) -> bool) -> bool {
        self.0.iter().any(|release| is_meant(&release.key) && release.is_unanswered())
    }
}

/// The holds of a lock that is not reentrant, which its clones share.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<Inside>);

#[derive(Debug, Default)]
struct Inside {
    set: Option<SetGuard>,
    releases: Releases<()>,
}

impl Held {
    /// Stores the guard of a grant. The previous guard was lost; otherwise the request would not have been granted.
    pub(super) fn put(&self, set: SetGuard) {
        self.0.lock().set = Some(set);
    }

    /// Releases the holds. Does nothing if an earlier release continues without its call.
    pub(super) async fn release(&self, path: impl FnOnce() -> String) -> Result<(), CuratorError> {
        let (set, call) = {
            let Inside { set, releases } = &mut *self.0.lock();
            let Some(set) = set.take() else {
                let refused = || CuratorError::IllegalState { path: path(), why: "it is not acquired" };
                return releases.is_unanswered(|()| true).then_some(()).ok_or_else(refused);
            };
            let call = releases.begin(&(), set.guards().iter().map(LockGuard::changes));
            (set, call)
        };
        let released = set.release().await;
        self.0.lock().releases.end(call);
        released?;
        Ok(())
    }

    /// Whether all locks are held, or a release of them is not answered.
    pub(super) fn is_held(&self) -> bool {
        let Inside { set, releases } = &*self.0.lock();
        releases.is_pending(|()| true) || set.as_ref().is_some_and(|set| set.state() != HoldState::Lost)
    }

    /// The fencing token of this path's grant, while all locks are held.
    pub(super) fn token(&self, path: &str) -> Option<FencingToken> {
        let inside = self.0.lock();
        let set = inside.set.as_ref().filter(|set| set.state() != HoldState::Lost)?;
        set.token(path)
    }

    /// A watch of this path's hold.
    pub(super) fn watch(&self, path: &str) -> Option<HoldWatch> {
        let inside = self.0.lock();
        inside.set.as_ref()?.guards().iter().find(|guard| guard.name().as_str() == path).map(LockGuard::watch)
    }
}
