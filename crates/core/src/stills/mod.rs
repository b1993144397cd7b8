//! Makes stills of frames of chains, for applications that do not decode chains: on demand, and once
//! for all readers (`docs/decisions/0043-video-stays-video.md`). Readers on one host that could decode
//! chains themselves share decoded pictures in the same way (`docs/decisions/0046-shared-pictures.md`).
//!
//! A [`StillMaker`] reads a camera's log like any other reader. It has no input or output of its own. Its driver
//! passes on queries, the growth of the log and the results of decoders, and executes its outputs ([`StillOutput`]).
//!
//! | question | where |
//! | --- | --- |
//! | which decoder goes where, and which frame is next? | `places.rs` |
//! | which queries can be answered, and which results are kept? | this file |
//! | which stills are made ahead of queries? | `ahead.rs` |
//! | on which chains did decoders fail? | `lost.rs` |
//! | how are stills of frames on disk made? | `past.rs` |

mod ahead;
mod lost;
mod past;
mod places;
mod types;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::ahead::Ahead;
use self::lost::{Failure, Lost};
pub use self::past::{PastDecoded, PastFrames, PastStills, PastTask};
use self::places::{AHEAD_FRAMES, Path, Places};
pub use self::places::{DECODERS_MAX, IDLE_MAX};
pub use self::types::{
    Decoded, Form, Picture, PictureAnswer, PicturePlace, StillAnswer, StillOutput, StillQuery,
};
use crate::chain::{ChainFollower, ChainId};
use crate::frame::{ChainLink, Encoding, Frame, FrameId, FrameMeta};
use crate::log::{LogReader, Record, ShortLogWriter, short_log};
use crate::trace::FrameTrace;
use crate::units::Instant;

/// A decoder follows the log for this long after a query for the newest frame, so that the next still costs one
/// decoding. After other queries, the decoder stays where it is, because the next frame is most likely wanted next.
const FOLLOW_MAX: Duration = Duration::from_secs(2);
/// The most bytes of recent stills of a camera, or a sixteenth of the camera's share if that is less.
const MADE_BYTES_MAX: u64 = 8 << 20;
/// If a still of the newest frame needs more decodings than this, another chain serves the reader better.
const FAR_FRAMES: u32 = 64;
/// The most remembered frames that could not be decoded although their chains continue.
const REFUSED_MAX: usize = 32;

/// The bytes that the stills of a camera may take of its `share`.
pub const fn still_bytes_max(share: u64) -> u64 {
    let sixteenth = share / 16;
    if sixteenth < MADE_BYTES_MAX { sixteenth } else { MADE_BYTES_MAX }
}

/// An open query.
#[derive(Clone, Copy, Debug)]
struct Asked {
    question: u64,
    query: StillQuery,
    form: Form,
}

/// Makes the stills of one camera's frames.
pub struct StillMaker {
    log: LogReader,
    places: Places,
    /// Open queries, oldest first. At most one for each reader of the camera.
    asked: Vec<Asked>,
    made: ShortLogWriter,
    reads_made: LogReader,
    ahead: Ahead,
    /// The newest picture that was made, with its frame.
    picture: Option<(FrameId, Picture)>,
    lost: Lost,
    /// Frames that cannot be decoded although their chains continue.
    refused: VecDeque<FrameId>,
    /// The last chain that needed too many decodings. The camera was asked for another one.
    far: Option<ChainId>,
    outputs: VecDeque<StillOutput>,
}

impl StillMaker {
    /// A maker of stills of the frames of this log. No decoder has started yet.
    pub fn new(log: LogReader) -> Self {
        let (made, reads_made) = short_log(0);
        Self {
            log,
            places: Places::default(),
            asked: Vec::new(),
            made,
            reads_made,
            ahead: Ahead::default(),
            picture: None,
            lost: Lost::default(),
            refused: VecDeque::new(),
            far: None,
            outputs: VecDeque::new(),
        }
    }

    // ---- getters ------------------------------------------------------------------------------------------

    /// Bytes of recent stills, stills made ahead, stills that readers hold, and the newest picture.
    pub fn bytes(&self) -> u64 {
        self.made.bytes() + self.ahead.bytes() + self.picture_bytes()
    }

    /// Whether no query is open, no still is kept ahead of a query, and no decoder has memory.
    pub fn is_idle(&self) -> bool {
        self.asked.is_empty()
            && self.outputs.is_empty()
            && self.ahead.is_empty()
            && self.places.are_released()
    }

    /// The description of a frame that the log holds.
    pub fn meta(&self, frame: FrameId) -> Option<FrameMeta> {
        self.log.get_frame(frame).map(|record| record.frame.meta)
    }

    // ---- what happened ------------------------------------------------------------------------------------

    /// A reader queries the still of a frame. Each query is answered once, under its number `question`.
    pub fn handle_query(&mut self, now: Instant, question: u64, query: StillQuery) {
        self.asked.push(Asked { question, query, form: Form::Still });
        if !query.newest {
            self.ahead.asked(now, query.frame, &self.log);
        }
        self.look_how_far(query);
        self.go_on(now);
    }

    /// A reader queries the picture of a frame that was the newest when the reader looked. Each query is answered once, under
    /// its number `question`. No frame is decoded twice for a picture: a reader that comes too late takes the next picture.
    pub fn handle_picture_query(&mut self, now: Instant, question: u64, frame: FrameId) {
        let query = StillQuery { frame, newest: true };
        self.asked.push(Asked { question, query, form: Form::Picture });
        self.go_on(now);
    }

    /// The reader no longer waits for the answer.
    pub fn handle_dropped(&mut self, question: u64) {
        self.asked.retain(|asked| asked.question != question);
    }

    /// The log has grown.
    pub fn handle_appended(&mut self, now: Instant) {
        self.go_on(now);
    }

    /// A decoder has finished a frame. Ignored if the decoder was given another frame.
    pub fn handle_decoded(&mut self, now: Instant, decoder: usize, frame: FrameId, decoded: Decoded) {
        let Some(record) = self.places.handle_done(decoder, frame, &decoded) else { return };
        let chain = ChainId::of(&record.frame.meta);
        if let Some(chain) = chain.filter(|_| is_decoded(&decoded)) {
            self.lost.decoded(chain, frame);
        }
        match decoded {
            Decoded::Still { encoding, .. } if encoding.is_chained() => {
                self.handle_decoded_badly(&record.frame.meta, &Decoded::Failed);
            }
            Decoded::Still { payload, encoding, width, height } => {
                let still = still_of(&record, (payload, encoding), (width, height), now);
                self.keep(now, still);
            }
            Decoded::Picture(picture) => self.keep_picture(now, record.frame.meta.id, &picture),
            Decoded::Passed => {}
            Decoded::NotHeld | Decoded::Failed => self.handle_decoded_badly(&record.frame.meta, &decoded),
        }
        self.go_on(now);
    }

    /// Handles the instant of [`StillMaker::poll_timeout`]. It may be called at any time.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.outputs.extend(self.places.release_idle(now).map(|decoder| StillOutput::Release { decoder }));
        self.ahead.forget_old(now);
        if self.places.are_released() {
            self.picture = None;
        }
        self.go_on(now);
    }

    // ---- what is wanted -----------------------------------------------------------------------------------

    /// The next action for the driver.
    pub fn poll_output(&mut self) -> Option<StillOutput> {
        self.outputs.pop_front()
    }

    /// When [`StillMaker::handle_timeout`] is due. `None`: no timeout is set.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.places.idle_due().into_iter().chain(self.ahead.due()).min()
    }

    // ---- inside -------------------------------------------------------------------------------------------

    /// Answers the queries that can be answered, and sends decoders to the frames of the others.
    fn go_on(&mut self, now: Instant) {
        self.set_bytes_max();
        loop {
            self.answer(now);
            self.places.forget_targets();
            for Asked { query, .. } in &self.asked {
                if let Some(record) = self.log.get_frame(query.frame) {
                    // A query for the newest frame does not wait for stills that are made ahead.
                    let stays = |decoded: &ChainFollower| {
                        !query.newest && next_ahead(decoded, &self.log, &self.refused, &self.ahead).is_some()
                    };
                    self.places.head_for(now, &record.frame.meta, stays);
                }
            }
            // A decoder that cannot reach its target is free for other queries.
            let blocked = (0..DECODERS_MAX).filter(|decoder| !self.send(now, *decoder)).count();
            if blocked == 0 {
                return;
            }
        }
    }

    /// Divides the camera's share, which may have changed. Stills made ahead get at most half of the bytes that the newest picture leaves.
    fn set_bytes_max(&mut self) {
        let bytes_max = self.bytes_max();
        self.picture.take_if(|(_, picture)| picture.data.len() as u64 > bytes_max);
        let bytes_max = bytes_max - self.picture_bytes();
        self.ahead.set_bytes_max(bytes_max / 2);
        self.made.set_bytes_max(bytes_max - self.ahead.bytes());
    }

    /// Gives a free decoder the next frame on its way. Returns false if it cannot reach its target.
    fn send(&mut self, now: Instant, decoder: usize) -> bool {
        let ahead = |decoded: &ChainFollower| next_ahead(decoded, &self.log, &self.refused, &self.ahead);
        match self.places.next(now, decoder, &self.log, &self.refused, ahead) {
            Path::Rest => {}
            Path::Decode { record, afresh } => {
                let id = record.frame.meta.id;
                let ahead = || self.ahead.wants(id, &self.log).then_some(Form::Still);
                let wanted = self.form_wanted(id).or_else(ahead);
                let frame = Box::new(record.frame);
                self.outputs.push_back(StillOutput::Decode { decoder, frame, afresh, wanted });
            }
            Path::Show { frame } => {
                let form = self.form_wanted(frame).unwrap_or(Form::Still);
                self.outputs.push_back(StillOutput::Show { decoder, frame, form });
            }
            Path::Unreachable { frame } => {
                remember(&mut self.refused, frame);
                self.outputs.push_back(StillOutput::ChainLost);
                return false;
            }
        }
        true
    }

    /// Whether an open query wants this form of a frame.
    fn form_asked(&self, frame: FrameId, form: Form) -> bool {
        self.asked.iter().any(|asked| asked.query.frame == frame && asked.form == form)
    }

    /// The form that is wanted of a frame. A picture costs less than a still, so it comes first.
    fn form_wanted(&self, frame: FrameId) -> Option<Form> {
        [Form::Picture, Form::Still].into_iter().find(|form| self.form_asked(frame, *form))
    }

    fn answer(&mut self, now: Instant) {
        for asked in std::mem::take(&mut self.asked) {
            let Asked { question, query, form } = asked;
            let answer = match form {
                Form::Still => self.answer_to(query).map(|answer| StillOutput::Answer { question, answer }),
                Form::Picture => {
                    self.picture_of(query.frame).map(|answer| StillOutput::Picture { question, answer })
                }
            };
            match answer {
                Some(answer) => {
                    if query.newest {
                        self.places.served(query.frame, &self.log, now + FOLLOW_MAX);
                    }
                    self.outputs.push_back(answer);
                }
                None => self.asked.push(asked),
            }
        }
    }

    /// The answer to a query for a still, if it is known.
    fn answer_to(&mut self, query: StillQuery) -> Option<StillAnswer> {
        let frame = query.frame;
        if let Some(made) = self.reads_made.get_frame(frame) {
            return Some(StillAnswer::Still(Box::new(made), Some(self.reads_made.clone())));
        }
        if let Some(made) = self.ahead.take(frame) {
            return Some(StillAnswer::Still(Box::new(made), None));
        }
        let Some(record) = self.log.get_frame(frame) else { return Some(StillAnswer::Gone) };
        let Some(chain) = ChainId::of(&record.frame.meta) else {
            return Some(StillAnswer::Still(Box::new(record), Some(self.log.clone())));
        };
        if self.is_lost(chain, frame, query.newest) {
            return Some(StillAnswer::NotDecoded);
        }
        let is_overtaken = query.newest && self.has_begun_since(chain) && self.is_far(&record);
        is_overtaken.then_some(StillAnswer::Overtaken)
    }

    /// The answer to a query for a picture, if it is known.
    fn picture_of(&self, frame: FrameId) -> Option<PictureAnswer> {
        if let Some((_, picture)) = self.picture.as_ref().filter(|(of, _)| *of == frame) {
            return Some(PictureAnswer::Picture(picture.clone()));
        }
        let Some(record) = self.log.get_frame(frame) else { return Some(PictureAnswer::NotDecoded) };
        match ChainId::of(&record.frame.meta) {
            Some(chain) if !self.is_lost(chain, frame, true) => {
                self.places.have_passed(frame).then_some(PictureAnswer::Overtaken)
            }
            _ => Some(PictureAnswer::NotDecoded),
        }
    }

    /// Whether a frame is not decoded any more, for readers of the `newest` frame or for others.
    fn is_lost(&self, chain: ChainId, frame: FrameId, newest: bool) -> bool {
        self.lost.holds(chain, frame, newest) || self.refused.contains(&frame)
    }

    /// Asks the camera for another chain if the newest frame is far from the beginning of its chain and no decoder is near.
    fn look_how_far(&mut self, query: StillQuery) {
        let record = self.log.get_frame(query.frame).filter(|_| query.newest);
        let Some(record) = record else { return };
        let chain = ChainId::of(&record.frame.meta);
        if self.far != chain && self.is_far(&record) {
            self.far = chain;
            self.outputs.push_back(StillOutput::ChainLost);
        }
    }

    /// Whether so many frames must be decoded first that another chain would be ready sooner.
    fn is_far(&self, record: &Record) -> bool {
        self.places.is_further(record, FAR_FRAMES, &self.log)
    }

    /// Whether a chain later than this one has begun.
    fn has_begun_since(&self, chain: ChainId) -> bool {
        let newest = self.log.newest().and_then(|newest| ChainId::of(&newest.frame.meta));
        newest.is_some_and(|newest| newest.first_frame() > chain.first_frame())
    }

    /// Keeps a still for later queries. If it cannot be kept, the open queries for it are answered at once.
    fn keep(&mut self, now: Instant, still: Record) {
        let id = still.frame.meta.id;
        self.ahead.keep(now, &still, &self.log);
        self.set_bytes_max();
        let is_asked = self.form_asked(id, Form::Still);
        if !is_asked || self.made.append(still.clone()) {
            return;
        }
        // The still is older than kept ones, or readers hold too many: the waiting readers get it as memory of their own.
        let is_it = |asked: &mut Asked| asked.form == Form::Still && asked.query.frame == id;
        let waiting = self.asked.extract_if(.., is_it);
        let answers = waiting.map(|Asked { question, .. }| {
            let answer = StillAnswer::Still(Box::new(still.clone()), None);
            StillOutput::Answer { question, answer }
        });
        self.outputs.extend(answers);
    }

    /// Answers all open queries for a picture, and keeps the picture for later ones until there is a newer picture.
    fn keep_picture(&mut self, now: Instant, id: FrameId, picture: &Picture) {
        let is_it = |asked: &mut Asked| asked.form == Form::Picture && asked.query.frame == id;
        for Asked { question, .. } in self.asked.extract_if(.., is_it) {
            let answer = PictureAnswer::Picture(picture.clone());
            self.outputs.push_back(StillOutput::Picture { question, answer });
        }
        self.places.served(id, &self.log, now + FOLLOW_MAX);
        let is_newer = self.picture.as_ref().is_none_or(|(kept, _)| *kept < id);
        if is_newer && picture.data.len() as u64 <= self.bytes_max() {
            self.picture = Some((id, picture.clone()));
        }
    }

    /// The bytes that stills and the newest picture may take.
    fn bytes_max(&self) -> u64 {
        still_bytes_max(self.log.share().bytes_max)
    }

    fn picture_bytes(&self) -> u64 {
        self.picture.as_ref().map_or(0, |(_, picture)| picture.data.len() as u64)
    }

    fn handle_decoded_badly(&mut self, meta: &FrameMeta, decoded: &Decoded) {
        let failure = match ChainId::of(meta) {
            Some(chain) if *decoded == Decoded::Failed => Some(self.lost.failed(chain, meta.id)),
            _ => {
                remember(&mut self.refused, meta.id);
                None
            }
        };
        // The camera was already asked for another chain after the first failure.
        if failure != Some(Failure::Again) {
            self.outputs.push_back(StillOutput::ChainLost);
        }
        if failure == Some(Failure::First) {
            self.outputs.push_back(StillOutput::TriesAgain { frame: meta.id });
        }
    }
}

/// Whether a decoder has decoded its frame.
fn is_decoded(decoded: &Decoded) -> bool {
    matches!(decoded, Decoded::Still { .. } | Decoded::Picture(_) | Decoded::Passed)
}

/// The frame after the last one of a decoder, if a still of it is to be made ahead.
fn next_ahead(
    decoded: &ChainFollower,
    log: &LogReader,
    refused: &VecDeque<FrameId>,
    ahead: &Ahead,
) -> Option<Record> {
    let (chain, last) = (decoded.chain()?, decoded.last()?);
    let next = log.index_of(last.next());
    let mut records = (next..log.held().end.min(next + AHEAD_FRAMES)).filter_map(|index| log.get(index));
    let next = records.find(|record| {
        let meta = &record.frame.meta;
        ChainId::of(meta) == Some(chain) && decoded.allows(meta) && !refused.contains(&meta.id)
    })?;
    ahead.wants(next.frame.meta.id, log).then_some(next)
}

/// A still of a frame, made at `now`: the frame's record with the payload, encoding and size of the still. Rung and arrival are those of the frame.
pub fn still_of(
    record: &Record,
    (payload, encoding): (Bytes, Encoding),
    (width, height): (u32, u32),
    now: Instant,
) -> Record {
    let meta = record.frame.meta.clone();
    let chain = ChainLink::still(meta.id.sequence);
    let made = |trace: &Arc<FrameTrace>| FrameTrace { decoded: Some(now), logged: now, ..**trace };
    Record {
        frame: Frame { meta: FrameMeta { encoding, width, height, chain, ..meta }, payload },
        trace: record.trace.as_ref().map(made).map(Arc::new),
        ..record.clone()
    }
}

fn remember(refused: &mut VecDeque<FrameId>, frame: FrameId) {
    if refused.len() == REFUSED_MAX {
        refused.pop_front();
    }
    refused.push_back(frame);
}

#[cfg(test)]
mod tests;
