//! Delivers the answers of a camera to the one program that takes them, and converts answers to and from messages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mez_core::answers::{AnswerKind, AnswerTimes, Answered};
use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::units::{Instant, Timestamp};
use mez_core::wire::{AnswerSkip, AnswerSkips};
use tokio::sync::watch;
use tonic::Code;

use super::duration::nanos;
use super::lent::{Lending, Payload};
use super::pb::AnswerStage;
use super::principal::Principal;
use super::{ApiError, pb};
use crate::camera::CameraHandle;

/// The reason of the error when another program takes the answers of a camera.
pub const ANSWERS_TAKEN: &str = "ANSWERS_TAKEN";

/// Who takes the answers of a camera.
#[derive(Clone, Default)]
pub(super) struct Taker(Arc<Mutex<Option<Principal>>>);

impl Taker {
    fn lock(&self) -> MutexGuard<'_, Option<Principal>> {
        // Each statement leaves the value consistent, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The answers of a camera. The camera takes answers until this is dropped.
pub(crate) struct AnswerFeed {
    camera: CameraHandle,
    taker: Taker,
    principal: Principal,
    lending: Arc<Lending>,
    skipped: Skipped,
    /// Changes when an edge has sent its account.
    accounted: watch::Receiver<()>,
    stopping: watch::Receiver<bool>,
    progress: Progress,
}

#[derive(PartialEq, Eq)]
enum Progress {
    New,
    Begun,
    /// The last counts were told because the broker stops.
    Stopping,
    Over,
}

impl AnswerFeed {
    /// Begins to take the answers of `camera`, unless another program takes them.
    pub(super) fn begin(
        camera: &CameraHandle,
        bound: Duration,
        (taker, principal): (&Taker, &Principal),
        lending: &Arc<Lending>,
        stopping: watch::Receiver<bool>,
    ) -> Result<Self, ApiError> {
        let mut taken_by = taker.lock();
        if let Some(other) = &*taken_by {
            let message = format!(
                "{other} takes the answers of camera {} already; only one program at a time can: end that one first",
                camera.name()
            );
            return Err(ApiError::new(Code::FailedPrecondition, ANSWERS_TAKEN, message));
        }
        *taken_by = Some(principal.clone());
        let accounted = camera.answers_accounted();
        let skipped = Skipped::since(camera.answers_skipped());
        camera.set_answers(Some(bound));
        drop(taken_by);
        Ok(Self {
            camera: camera.clone(),
            taker: taker.clone(),
            principal: principal.clone(),
            lending: Arc::clone(lending),
            skipped,
            accounted,
            stopping,
            progress: Progress::New,
        })
    }

    /// The next response, chosen now, without the answer's payload, and the payload. The first one comes at once. `None` after the last. Cancel safe.
    pub(crate) async fn next(
        &mut self,
    ) -> Option<Result<(pb::TakeAnswersResponse, Option<Bytes>), ApiError>> {
        match self.progress {
            Progress::New => {
                self.progress = Progress::Begun;
                return Some(Ok((pb::TakeAnswersResponse::default(), None)));
            }
            Progress::Begun => {}
            Progress::Stopping => {
                self.progress = Progress::Over;
                return Some(Err(ApiError::stopping()));
            }
            Progress::Over => return None,
        }
        loop {
            let answered = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stop| *stop) => {
                    self.progress = Progress::Stopping;
                    // An answer that waits counts as unread.
                    self.camera.set_answers(None);
                    let skipped = self.skipped.news(self.camera.answers_skipped());
                    return Some(Ok((pb::TakeAnswersResponse { answer: None, skipped }, None)));
                }
                answered = self.camera.next_answer() => match answered {
                    Some((answered, _)) => Some(answered),
                    None => {
                        self.progress = Progress::Over;
                        return None;
                    }
                },
                Ok(()) = self.accounted.changed() => None,
            };
            let skipped = self.skipped.news(self.camera.answers_skipped());
            let (answer, payload) = answered.map(message).unzip();
            if answer.is_some() || !skipped.is_empty() {
                return Some(Ok((pb::TakeAnswersResponse { answer, skipped }, payload)));
            }
        }
    }

    /// A payload on its way to the program.
    pub(super) fn lent(&self, payload: Bytes) -> Payload {
        Payload::own(payload, None, &self.lending, &self.principal)
    }
}

impl Drop for AnswerFeed {
    fn drop(&mut self) {
        let mut taken_by = self.taker.lock();
        self.camera.set_answers(None);
        *taken_by = None;
    }
}

/// The counts of skipped answers that a program was told.
struct Skipped {
    /// The counts when the stream began.
    before: AnswerSkips,
    /// The sum of the counts since then.
    counted: AnswerSkips,
    /// The last totals.
    total: AnswerSkips,
}

impl Skipped {
    fn since(before: AnswerSkips) -> Self {
        Self { before, counted: AnswerSkips::default(), total: AnswerSkips::default() }
    }

    /// The counts that have changed. `now`: all counts of the camera.
    fn news(&mut self, now: AnswerSkips) -> Vec<pb::SkippedAnswers> {
        // A count from before the stream may fall. What is counted after that is of the stream.
        self.before = self.before.min(&now);
        let total = now.since(&self.before);
        let more = total.since(&self.counted);
        let changed =
            AnswerSkip::ALL.into_iter().filter(|reason| total.get(*reason) != self.total.get(*reason));
        let told = changed.map(|reason| pb::SkippedAnswers {
            reason: reason as i32,
            count: more.get(reason),
            total: total.get(reason),
        });
        let told = told.collect();
        // A count that fell was already told, and is not told again when it rises.
        self.counted.add_all(&more);
        self.total = total;
        told
    }
}

/// An answer as a message without its payload, and the payload.
fn message(answered: Answered) -> (pb::Answer, Bytes) {
    let Answered { frame, captured, kind, width, height, shown, payload, times } = answered;
    let stages = [
        (AnswerStage::Up, times.up),
        (AnswerStage::Made, times.made),
        (AnswerStage::Sent, times.sent),
        (AnswerStage::Arriving, Some(times.arriving)),
        (AnswerStage::Arrived, Some(times.arrived)),
    ];
    let since = |(stage, at): (AnswerStage, Option<Instant>)| {
        let since_capture_ns = nanos(at?.saturating_since(times.captured));
        Some(pb::AnswerStageTime { stage: stage as i32, since_capture_ns })
    };
    let answer = pb::Answer {
        epoch: frame.epoch.0,
        sequence: frame.sequence.0,
        captured_utc_ns: captured.as_nanos(),
        captured_monotonic_ns: times.captured.as_nanos(),
        width,
        height,
        shown_width: shown.0,
        shown_height: shown.1,
        content_type: kind.content_type().into(),
        stages: stages.into_iter().filter_map(since).collect(),
        payload: Bytes::new(),
    };
    (answer, payload)
}

/// Reads an answer that came at `now`. `captured`: when its frame was captured, by this host's clock, if that is known. `None`: an answer of a kind that
/// this version does not know.
pub(crate) fn answered(answer: pb::Answer, captured: Option<Instant>, now: Instant) -> Option<Answered> {
    let kind = AnswerKind::of_content_type(&answer.content_type)?;
    let since = |stage: AnswerStage| {
        let told = answer.stages.iter().find(|told| told.stage == stage as i32)?;
        Some(Duration::from_nanos(told.since_capture_ns))
    };
    let arrived = since(AnswerStage::Arrived).unwrap_or_default();
    // Clocks are compared with an error, and an answer does not come before it arrived.
    let latest = Instant::from_nanos(now.as_nanos().saturating_sub(nanos(arrived)));
    let captured = captured.map_or(latest, |captured| captured.min(latest));
    let at = |stage| Some(captured + since(stage)?);
    let times = AnswerTimes {
        captured,
        up: at(AnswerStage::Up),
        made: at(AnswerStage::Made),
        sent: at(AnswerStage::Sent),
        arriving: at(AnswerStage::Arriving).unwrap_or(captured),
        arrived: captured + arrived,
    };
    Some(Answered {
        frame: FrameId { epoch: Epoch(answer.epoch), sequence: Sequence(answer.sequence) },
        captured: Timestamp::from_nanos(answer.captured_utc_ns),
        kind,
        width: answer.width,
        height: answer.height,
        // An older broker does not say it.
        shown: (answer.shown_width.max(answer.width), answer.shown_height.max(answer.height)),
        payload: answer.payload,
        times,
    })
}

/// The totals after a response, which tells those that have changed. `before`: the totals before it.
pub(crate) fn totals(before: &AnswerSkips, told: &[pb::SkippedAnswers]) -> AnswerSkips {
    let mut totals = AnswerSkips::default();
    for reason in AnswerSkip::ALL {
        // A reason of a later version is ignored.
        let told = told.iter().find(|told| told.reason == reason as i32);
        totals.add(reason, told.map_or(before.get(reason), |told| told.total));
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skips(late: u64, replaced: u64) -> AnswerSkips {
        let mut skips = AnswerSkips::default();
        skips.add(AnswerSkip::Late, late);
        skips.add(AnswerSkip::Replaced, replaced);
        skips
    }

    /// A count that fell and rises again is told once. The totals are exact.
    #[test]
    fn counts_are_told_once_and_totals_as_they_are() {
        let mut skipped = Skipped::since(skips(10, 0));
        let told = |late, count, total| vec![pb::SkippedAnswers { reason: late, count, total }];
        let (late, replaced) = (AnswerSkip::Late as i32, AnswerSkip::Replaced as i32);
        assert_eq!(skipped.news(skips(10, 0)), []);
        assert_eq!(skipped.news(skips(12, 0)), told(late, 2, 2));
        assert_eq!(skipped.news(skips(11, 0)), told(late, 0, 1));
        assert_eq!(skipped.news(skips(12, 0)), told(late, 0, 2));
        assert_eq!(skipped.news(skips(12, 3)), told(replaced, 3, 3));
        // Two of the ten from before were delivered after all.
        let mut skipped = Skipped::since(skips(10, 0));
        assert_eq!(skipped.news(skips(8, 0)), []);
        assert_eq!(skipped.news(skips(10, 0)), told(late, 2, 2));
        assert_eq!(totals(&skips(3, 4), &told(late, 0, 2)), skips(2, 4));
        assert_eq!(totals(&skips(3, 4), &told(99, 0, 2)), skips(3, 4));
    }

    #[test]
    fn an_answer_survives_the_message() {
        let at = |ms: u64| Instant::from_nanos(1_000_000_000 + ms * 1_000_000);
        let times = AnswerTimes {
            captured: at(0),
            up: Some(at(3)),
            made: None,
            sent: Some(at(5)),
            arriving: at(7),
            arrived: at(9),
        };
        let sent = Answered {
            frame: FrameId { epoch: Epoch(3), sequence: Sequence(8) },
            captured: Timestamp::from_nanos(77),
            kind: AnswerKind::Overlay,
            width: 32,
            height: 24,
            shown: (64, 48),
            payload: Bytes::from_static(b"picture"),
            times,
        };
        let (message, payload) = message(sent.clone());
        assert!(message.payload.is_empty());
        let message = pb::Answer { payload, ..message };
        let same = Some(Instant::from_nanos(message.captured_monotonic_ns));
        assert_eq!(answered(message.clone(), same, at(20)), Some(sent));
        // By a clock that is wrong, or not compared yet, it arrives at the latest now.
        for captured in [Some(at(15)), None] {
            let read = answered(message.clone(), captured, at(20)).unwrap();
            assert_eq!((read.times.captured, read.times.arrived), (at(11), at(20)));
        }
        let other = pb::Answer { content_type: "image/new".into(), ..message };
        assert_eq!(answered(other, None, at(20)), None);
    }
}
