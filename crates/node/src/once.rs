//! Runs code that is not deployed, for the control API.

use admin::{Once, Ran};
use bytes::Bytes;
use contract::{HeadBuilder, Problem, RequestId, ResponseHead};
use dispatcher::Dispatcher;
use registry::Version;
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::oneshot;
use worker::{Answer, Failure, Shared};

/// Bytes of the end of its log that come with an answer.
const LOG: usize = 4 << 10;

/// Marks the ids of these requests: no core numbers its own so.
const MARK: u64 = 1 << 63;

/// See the module.
pub(crate) struct Runner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) boot: u64,
    pub(crate) requests: AtomicU64,
}

impl Once for Runner {
    fn run(
        &self,
        version: Arc<Version>,
        head: HeadBuilder,
        body: Bytes,
    ) -> Pin<Box<dyn Future<Output = Ran> + Send>> {
        let target = self.dispatcher.unnamed(&version);
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let id = RequestId(u128::from(self.boot) << 64 | u128::from(MARK | number));
        let (sender, answer) = oneshot::channel();
        if let Err(reason) = target.preload() {
            let _ = sender.send(Ran {
                answer: Err(platform(&reason)),
                log: Vec::new(),
                timing: String::new(),
            });
        } else {
            self.shared
                .submit(target, head.build(id), body, LOG, move |core, answer| {
                    gateway::record_elsewhere(&answer, core);
                    // Whoever asked may have gone.
                    let _ = sender.send(ran(answer));
                });
        }
        let dispatcher = self.dispatcher.clone();
        Box::pin(async move {
            let ran = answer.await.unwrap_or_else(|_| Ran {
                answer: Err(platform("it ends")),
                log: Vec::new(),
                timing: String::new(),
            });
            dispatcher.forget(&version.function);
            ran
        })
    }
}

fn platform(reason: &str) -> Problem {
    Problem::new(
        500,
        "platform",
        format!("the node failed to run the function: {reason}"),
        "this is the platform's fault: see the node's own log and `millpond doctor`",
    )
}

fn ran(answer: Answer) -> Ran {
    let timing = &answer.timing;
    let phases = [
        ("queue", timing.queue),
        ("boot", timing.boot),
        ("run", timing.run),
    ];
    let phases = phases.map(|(name, time)| format!("{name};dur={:.3}", time.as_secs_f64() * 1e3));
    Ran {
        timing: phases.join(", "),
        log: answer.log_tail,
        answer: match answer.result {
            Ok(response) => {
                let head = response.head.unwrap_or(ResponseHead {
                    status: 500,
                    headers: Vec::new(),
                });
                let body = match <[Bytes; 1]>::try_from(response.body.into_vec()) {
                    Ok([whole]) => whole,
                    Err(pieces) => pieces.concat().into(),
                };
                Ok((head, body))
            }
            Err(failure) => {
                let mut problem = match failure {
                    Failure::Fault(fault) | Failure::Left(fault) => Problem::of_fault(&fault),
                    Failure::Refused(refusal) => Problem::of_refusal(refusal),
                    Failure::Platform(reason) => platform(&reason),
                };
                problem.request_id = Some(answer.id);
                Err(problem)
            }
        },
    }
}
