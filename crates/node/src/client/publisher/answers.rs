//! Takes answers of applications to the publisher's frames from a camera broker in another process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mez_core::answers::{AnswerBox, Answered};
use mez_core::frame::FrameId;
use mez_core::name::CameraName;
use mez_core::units::Instant;
use mez_core::wire::{AnswerSkip, AnswerSkips};
use tokio::sync::{Notify, watch};
use tracing::warn;

use super::PublisherClient;
use crate::api::answers::{ANSWERS_TAKEN, answered, totals};
use crate::api::pb;
use crate::client::dial::Dialler;
use crate::client::error::ClientError;
use crate::client::{REDIAL_INTERVAL, frame::BrokerClock};
use crate::clock::monotonic_now;

/// How long to wait for the broker's confirmation. A program that has just ended may not have made room yet.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(2);

/// The answers of a publisher, and its wish for them.
pub(super) struct Answers {
    wish: watch::Sender<Wish>,
    /// What the broker says, and to which wish.
    standing: watch::Sender<(u64, Standing)>,
    state: Mutex<State>,
    /// Signals that there is an answer to take.
    came: Notify,
}

/// The publisher's wish for answers.
#[derive(Clone, Copy, Debug, Default)]
struct Wish {
    /// Counts the wishes. What the broker said to an earlier one does not count.
    number: u64,
    /// The age bound. `None`: the publisher takes no answers.
    bound: Option<Duration>,
}

/// What the broker says to the wish for answers.
#[derive(Clone, Debug, Default)]
enum Standing {
    /// Nothing yet.
    #[default]
    Asking,
    /// It cannot be reached, or serves another program. The client asks again.
    Away(ClientError),
    /// It sends answers.
    Taking,
    /// It never will.
    Failed(ClientError),
}

#[derive(Default)]
struct State {
    taken: AnswerBox,
    /// The newest frame whose answer came.
    newest: Option<FrameId>,
    /// No answer of the present stream has come yet.
    begins: bool,
    /// The skipped answers of streams that have ended.
    before: AnswerSkips,
    /// The skipped answers of the present stream.
    now: AnswerSkips,
    /// Answers that came and were refused here.
    refused: u64,
}

impl State {
    fn handle(&mut self, skipped: &[pb::SkippedAnswers], answer: Option<Option<Answered>>) {
        self.now = totals(&self.now, skipped);
        if let Some(answer) = answer {
            let begins = std::mem::take(&mut self.begins);
            let frame = answer.as_ref().map(|answer| answer.frame);
            // A broker gives each frame's answer once. If a new stream begins below, its broker has lost its state, and its frames are newer.
            if begins && frame.is_some() && frame <= self.newest {
                self.newest = None;
                self.taken.begin_again();
            }
            match answer.filter(|answer| self.newest < Some(answer.frame)) {
                Some(answer) => {
                    self.newest = Some(answer.frame);
                    self.taken.put(answer);
                }
                None => self.refused += 1,
            }
        }
        let mut all = self.before;
        all.add_all(&self.now);
        all.add(AnswerSkip::Refused, self.refused);
        self.taken.set_skipped(all);
    }

    /// The stream has ended.
    fn handle_end(&mut self) {
        self.before.add_all(&std::mem::take(&mut self.now));
        self.begins = true;
    }
}

impl Answers {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            wish: watch::Sender::default(),
            standing: watch::Sender::default(),
            state: Mutex::default(),
            came: Notify::new(),
        })
    }

    /// Sets the age bound. Returns the number of this wish.
    pub(super) fn set(&self, bound: Option<Duration>) -> u64 {
        let mut number = 0;
        self.wish.send_modify(|wish| {
            number = wish.number + 1;
            *wish = Wish { number, bound };
        });
        if bound.is_none() {
            self.lock().taken.clear();
        }
        number
    }

    /// Waits until the broker sends answers, refuses to, or is away. An error: it refuses.
    async fn begun(&self, number: u64) -> Result<(), ClientError> {
        let mut standing = self.standing.subscribe();
        let settled = standing.wait_for(|(of, standing)| match standing {
            _ if *of != number => false,
            Standing::Asking => false,
            Standing::Away(reason) => !is_taken(reason),
            Standing::Taking | Standing::Failed(_) => true,
        });
        let settled = tokio::time::timeout(BEGIN_TIME_MAX, settled).await.is_ok();
        match &*self.standing.borrow() {
            (of, _) if *of != number => Ok(()),
            (_, Standing::Failed(reason)) => Err(reason.clone()),
            (_, Standing::Away(reason)) if !settled && is_taken(reason) => Err(reason.clone()),
            _ => Ok(()),
        }
    }

    async fn next(&self) -> Option<Result<(Answered, AnswerSkips), ClientError>> {
        let (mut wish, mut standing) = (self.wish.subscribe(), self.standing.subscribe());
        loop {
            let came = self.came.notified();
            let wished = *wish.borrow_and_update();
            wished.bound?;
            if let Some(answer) = self.lock().taken.take() {
                return Some(Ok(answer));
            }
            if let (of, Standing::Failed(reason)) = &*standing.borrow_and_update()
                && *of == wished.number
            {
                return Some(Err(reason.clone()));
            }
            tokio::select! {
                () = came => {}
                _ = wish.changed() => {}
                _ = standing.changed() => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each statement leaves the state consistent, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes answers whenever they are wanted, and begins again when the broker is back.
    pub(super) async fn run(self: Arc<Self>, dialler: Dialler, camera: CameraName) {
        let mut wish = self.wish.subscribe();
        // Since when another program takes them, and whether that was logged.
        let mut taken: Option<(Instant, bool)> = None;
        loop {
            let Wish { number, bound } = *wish.borrow_and_update();
            let Some(bound) = bound else {
                if wish.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let bound_ns = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX).max(1);
            let request = pb::TakeAnswersRequest { camera: camera.to_string(), bound_ns };
            let ended = tokio::select! {
                reason = self.take(&dialler, number, request) => Some(reason),
                _ = wish.changed() => None,
            };
            self.lock().handle_end();
            let Some(reason) = ended else { continue };
            if is_taken(&reason) {
                let (since, is_told) = taken.get_or_insert((monotonic_now(), false));
                if monotonic_now() >= *since + BEGIN_TIME_MAX && !std::mem::replace(is_told, true) {
                    warn!(%camera, "no answers come until the other program ends: {reason}");
                }
            } else {
                taken = None;
            }
            if !reason.is_passing() && !is_taken(&reason) {
                warn!(%camera, "no answers come: {reason}");
                self.standing.send_replace((number, Standing::Failed(reason)));
                let _ = wish.changed().await;
                continue;
            }
            self.standing.send_replace((number, Standing::Away(reason)));
            tokio::select! {
                () = tokio::time::sleep(REDIAL_INTERVAL) => {}
                _ = wish.changed() => {}
            }
        }
    }

    /// Takes answers until the stream ends. Returns the reason.
    async fn take(&self, dialler: &Dialler, number: u64, request: pb::TakeAnswersRequest) -> ClientError {
        let mut stream = match dialler.take_answers(request).await {
            Ok(stream) => stream,
            Err(reason) => return reason,
        };
        self.standing.send_replace((number, Standing::Taking));
        loop {
            let pb::TakeAnswersResponse { answer, skipped } = match stream.next().await {
                Ok(Some(response)) => response,
                Ok(None) => {
                    let reason = "the broker closed the connection".into();
                    return ClientError::Unreachable { address: dialler.address().clone(), reason };
                }
                Err(reason) => return reason,
            };
            let now = monotonic_now();
            let answer = answer.map(|answer| {
                let captured = to_ours(dialler, answer.captured_monotonic_ns);
                answered(answer, captured, now)
            });
            let mut state = self.lock();
            state.handle(&skipped, answer);
            // The publisher may have stopped taking answers meanwhile.
            if self.wish.borrow().bound.is_none() {
                state.taken.clear();
            }
            drop(state);
            self.came.notify_one();
        }
    }
}

/// An instant of the broker's clock by ours. `None`: the clocks have not been compared.
fn to_ours(dialler: &Dialler, theirs_ns: u64) -> Option<Instant> {
    let theirs = Instant::from_nanos(theirs_ns);
    match dialler.clock() {
        BrokerClock::Same => Some(theirs),
        BrokerClock::Compared(estimate) => Some(estimate?.to_ours(theirs)),
    }
}

/// Whether another program takes the answers, which may end.
fn is_taken(reason: &ClientError) -> bool {
    matches!(reason, ClientError::Refused(error) if error.reason == ANSWERS_TAKEN)
}

/// Takes a wish back, unless it was granted: also if nobody waits for it any more.
struct Begun<'a> {
    answers: &'a Answers,
    number: u64,
    is_granted: bool,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.is_granted && self.answers.wish.borrow().number == self.number {
            self.answers.set(None);
        }
    }
}

impl PublisherClient {
    /// Sets whether the publisher takes answers of applications to its frames. `bound`: the longest time from a frame's
    /// capture until its whole answer has left the edge. `None`, the default: no answers. Does not wait. A broker that is away is told when it is back.
    pub fn set_answers(&self, bound: Option<Duration>) {
        self.answers.set(bound);
    }

    /// Like [`PublisherClient::set_answers`] with a bound, and waits until the broker agrees. If it is away, does not wait for it. An error: the
    /// broker refuses, for example because another program takes the answers. Then none are taken.
    pub async fn begin_answers(&self, bound: Duration) -> Result<(), ClientError> {
        let number = self.answers.set(Some(bound));
        let mut begun = Begun { answers: &self.answers, number, is_granted: false };
        begun.answers.begun(number).await?;
        begun.is_granted = true;
        Ok(())
    }

    /// Waits for an answer that is newer than the last one, and returns the newest, with the counts of answers skipped since the last one. There is no
    /// queue: an answer that is not taken before the next one comes counts as `unread`. `None`: the publisher takes no answers. An error: the broker
    /// refuses for good. Cancel safe.
    pub async fn next_answer(&self) -> Option<Result<(Answered, AnswerSkips), ClientError>> {
        self.answers.next().await
    }

    /// All answers so far that did not reach the publisher, by reason. Answers that are lost with a connection to the broker are not counted.
    pub fn answers_skipped(&self) -> AnswerSkips {
        self.answers.lock().taken.skipped()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use mez_core::answers::{AnswerKind, AnswerTimes};
    use mez_core::frame::{Epoch, Sequence};
    use mez_core::units::Timestamp;

    use super::*;

    fn answer(sequence: u64) -> Option<Option<Answered>> {
        let at = Instant::ZERO;
        let times = AnswerTimes { captured: at, up: None, made: None, sent: None, arriving: at, arrived: at };
        Some(Some(Answered {
            frame: FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
            captured: Timestamp::from_nanos(1),
            kind: AnswerKind::Picture,
            width: 1,
            height: 1,
            shown: (1, 1),
            payload: Bytes::from_static(b"x"),
            times,
        }))
    }

    fn late(count: u64, total: u64) -> Vec<pb::SkippedAnswers> {
        vec![pb::SkippedAnswers { reason: AnswerSkip::Late as i32, count, total }]
    }

    /// Counts of several streams add up, and no answer is given that is not newer, whatever a broker sends.
    #[test]
    fn the_counts_of_streams_add_up() {
        let mut state = State::default();
        state.handle(&late(2, 2), answer(5));
        state.handle(&late(1, 3), answer(4));
        state.handle(&[], Some(None));
        state.handle_end();
        state.handle(&late(1, 1), None);
        let (given, skipped) = state.taken.take().unwrap();
        assert_eq!(given.frame.sequence, Sequence(5));
        assert_eq!((skipped.get(AnswerSkip::Late), skipped.get(AnswerSkip::Refused)), (4, 2));
        state.handle(&[], answer(6));
        state.handle(&[], answer(7));
        state.handle(&late(0, 0), None);
        assert_eq!(state.taken.skipped().get(AnswerSkip::Late), 3);
        let (given, skipped) = state.taken.take().unwrap();
        assert_eq!((given.frame.sequence, skipped.get(AnswerSkip::Unread)), (Sequence(7), 1));
        // A broker that lost its state counts from the beginning.
        state.handle_end();
        state.handle(&[], answer(1));
        state.handle(&[], answer(1));
        let (given, skipped) = state.taken.take().unwrap();
        assert_eq!((given.frame.sequence, skipped.get(AnswerSkip::Refused)), (Sequence(1), 1));
    }
}
