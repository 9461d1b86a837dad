//! What was denied, for the operator, who may have meant to grant it: as many lines of each function as can be read, and how many there were more.

use contract::FunctionId;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{runtime::Handle, time};

/// Lines of one function
const LINES: u64 = 10;

/// in this time, counted from the first.
const TIME: Duration = Duration::from_secs(60);

/// Functions with a denial of late, and how many each had.
#[derive(Clone, Debug)]
pub struct Denials {
    service: &'static str,
    counts: Arc<Mutex<HashMap<FunctionId, u64>>>,
}

impl Denials {
    /// Of calls to this service.
    pub fn new(service: &'static str) -> Self {
        Self {
            service,
            counts: Arc::default(),
        }
    }

    /// Another one: whether it has a line, and whether it is the first for a while.
    fn count(&self, function: &FunctionId) -> (bool, bool) {
        let mut counts = self.lock();
        let count = counts.entry(function.clone()).or_default();
        *count += 1;
        (*count <= LINES, *count == 1)
    }

    /// The time is over: how many there were without a line.
    fn end(&self, function: &FunctionId) -> u64 {
        let count = self.lock().remove(function);
        count.unwrap_or(0).saturating_sub(LINES)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FunctionId, u64>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it in the log, as `line` writes it, or in the count at the end of its time, which is told on this runtime.
    pub fn log(&self, runtime: &Handle, function: &FunctionId, line: impl FnOnce()) {
        let (has_line, is_first) = self.count(function);
        if has_line {
            line();
        }
        if is_first {
            let (denials, function) = (self.clone(), function.clone());
            runtime.spawn(async move {
                time::sleep(TIME).await;
                let more = denials.end(&function);
                if more > 0 {
                    let service = denials.service;
                    tracing::warn!(%function, more, "calls to {service} were not granted, too many for a line each");
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_has_so_many_lines_and_then_a_count() {
        let (denials, one, other) = (Denials::new("S3"), "a.f".parse().unwrap(), "a.g".parse().unwrap());
        let counted: Vec<_> = (0..LINES + 5).map(|_| denials.count(&one)).collect();
        let lines = counted.iter().filter(|(has_line, _)| *has_line).count();
        let firsts = counted.iter().filter(|(_, is_first)| *is_first).count();
        assert_eq!((lines as u64, firsts, counted[0].1), (LINES, 1, true));
        assert_eq!(denials.count(&other), (true, true));
        assert_eq!((denials.end(&one), denials.end(&other)), (5, 0));
        assert_eq!(denials.count(&one), (true, true), "its time begins anew");
    }
}
