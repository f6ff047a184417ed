//! Counts the items that searches look at, for tests.

#[cfg(test)]
thread_local! {
    static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts one more waiter, claim, lock or owner that a search looked at.
pub(crate) fn looked_at() {
    #[cfg(test)]
    LOOKED_AT.with(|count| count.set(count.get() + 1));
}

/// Runs a closure. Returns its result and how many items searches looked at during the run, on this thread.
#[cfg(test)]
pub(crate) fn count_of<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = LOOKED_AT.with(std::cell::Cell::get);
    let result = run();
    (result, LOOKED_AT.with(std::cell::Cell::get) - before)
}
