//! Makes stills of frames of chains, as the edge's driver does.

use std::time::Duration;

use mez_core::broker::edge::SubscriptionId;
use mez_core::frame::{ChainLink, Encoding, Frame};
use mez_core::history::{PastAnswer, PastQuery};
use mez_core::log::Record;
use mez_core::name::CameraName;
use mez_core::stills::{Decoded, PastDecoded, PastFrames, PastTask, StillAnswer, StillOutput, StillQuery};

use super::decoder::{Asked, Decoder, Stills, Work};
use super::{EdgeHost, EdgeProcess};
use crate::check::Checks;
use crate::payload::reduced;
use crate::time::ms;
use crate::trace::What;
use crate::world::bug::Bug;
use crate::world::events::{Event, StillMade};
use crate::world::node::{Node, Reader};
use crate::world::stage::Stage;
use crate::world::storage::KeptLog;

/// How long a decoder takes for a frame, in milliseconds.
const DECODING_MS: std::ops::RangeInclusive<u64> = 1..=8;
/// After how long a hanging decoder is given up, in milliseconds.
const HANG_MS: u64 = 250;
/// One frame in this many makes a decoder fail.
const DECODER_FAILS_ONCE_IN: u64 = 500;
/// One frame in this many makes a decoder hang.
const DECODER_HANGS_ONCE_IN: u64 = 1_000;

impl EdgeProcess {
    /// The maker of stills of a camera. After a reset of the camera, it is created anew for the new log.
    fn stills_of(&mut self, camera: &CameraName) -> Option<&mut Stills> {
        let log = self.logs.get(camera)?;
        let stills = self.stills.entry(camera.clone()).or_insert_with(|| Stills::new(log.clone()));
        if stills.log.share().log != log.share().log {
            *stills = Stills::new(log.clone());
        }
        Some(stills)
    }
}

impl EdgeHost {
    /// A subscription requests the still of a frame.
    pub(in crate::world) fn ask_still(
        &mut self,
        (reader, subscription): (Reader, SubscriptionId),
        camera: &CameraName,
        query: StillQuery,
        stage: &mut Stage<'_>,
    ) {
        let now = self.clock.monotonic(stage.now);
        let Some(stills) = self.process.as_mut().and_then(|process| process.stills_of(camera)) else {
            // After a restart of the edge, only the disk may know the camera.
            let answer = StillAnswer::NotDecoded;
            let made = StillMade { subscription, camera: camera.clone(), frame: query.frame, answer };
            stage.events.push(stage.now, Event::Still { reader, made: Box::new(made) });
            return;
        };
        stills.questions += 1;
        if stage.bug == Some(Bug::StillForgotten) && stills.questions.is_multiple_of(20) {
            return;
        }
        stills.asked.insert(stills.questions, Asked { reader, subscription, frame: query.frame });
        stills.maker.handle_query(now, stills.questions, query);
        self.make_stills(camera, stage);
    }

    /// A camera's log has grown.
    pub(super) fn tell_stills(&mut self, camera: &CameraName, stage: &mut Stage<'_>) {
        let now = self.clock.monotonic(stage.now);
        let stills = self.process.as_mut().and_then(|process| process.stills.get_mut(camera));
        if let Some(stills) = stills {
            stills.maker.handle_appended(now);
            self.make_stills(camera, stage);
        }
    }

    /// The timer of the maker of a camera's stills is due.
    pub(in crate::world) fn handle_stills(&mut self, run: u64, camera: &CameraName, stage: &mut Stage<'_>) {
        let now = self.clock.monotonic(stage.now);
        let process = self.process.as_mut().filter(|process| process.run == run);
        if let Some(stills) = process.and_then(|process| process.stills.get_mut(camera)) {
            stills.armed = None;
            stills.maker.handle_timeout(now);
            self.make_stills(camera, stage);
        }
    }

    /// Carries out the outputs of the maker of a camera's stills.
    fn make_stills(&mut self, camera: &CameraName, stage: &mut Stage<'_>) {
        let now = self.clock.monotonic(stage.now);
        let Some(process) = &mut self.process else { return };
        let (edge, run) = (self.index, process.run);
        let Some(stills) = process.stills.get_mut(camera) else { return };
        while let Some(output) = stills.maker.poll_output() {
            match output {
                StillOutput::Decode { decoder, frame, afresh, wanted } => {
                    if afresh {
                        stills.decoders[decoder].fail();
                        stage.checks.decoder_failed(run, camera, decoder);
                    }
                    stills.decoders[decoder].work =
                        Some(Work::Decode { frame: *frame, wanted: wanted.is_some() });
                    begin(stage, (edge, run, camera), decoder);
                }
                StillOutput::Show { decoder, frame, .. } => {
                    stills.decoders[decoder].work = Some(Work::Show(frame));
                    begin(stage, (edge, run, camera), decoder);
                }
                StillOutput::Release { decoder } => {
                    stills.decoders[decoder] = Decoder::default();
                    stage.checks.decoder_failed(run, camera, decoder);
                }
                StillOutput::Answer { question, answer } => {
                    let Some(Asked { reader, subscription, frame }) = stills.asked.remove(&question) else {
                        continue;
                    };
                    let made = StillMade { subscription, camera: camera.clone(), frame, answer };
                    stage.events.push(stage.now, Event::Still { reader, made: Box::new(made) });
                }
                StillOutput::Picture { .. } => {}
                StillOutput::ChainLost => {
                    process.broker.handle_chain_lost(now, camera);
                    stage.touch(Node::Edge(edge));
                }
                StillOutput::TriesAgain { .. } => {}
            }
        }
        if let Some(due) =
            stills.maker.poll_timeout().filter(|due| stills.armed.is_none_or(|armed| *due < armed))
        {
            stills.armed = Some(due);
            let at = self.clock.moment_of(due).max(stage.now + ms(1));
            stage.events.push(at, Event::Stills { edge, run, camera: camera.clone() });
        }
    }

    /// Ends a decoder's work. Returns whether the process that asked for it still runs.
    pub(in crate::world) fn handle_decoded(
        &mut self,
        run: u64,
        (camera, decoder): (&CameraName, usize),
        fails: bool,
        stage: &mut Stage<'_>,
    ) -> bool {
        let now = self.clock.monotonic(stage.now);
        let Some(process) = self.process.as_mut().filter(|process| process.run == run) else { return false };
        let Some(stills) = process.stills.get_mut(camera) else { return false };
        let place = &mut stills.decoders[decoder];
        let Some(work) = place.work.take() else { return false };
        let id = work.frame();
        let shows_all = stage.bug == Some(Bug::UndecodableShown);
        let decoded = match work {
            _ if fails && !shows_all => {
                place.fail();
                stage.checks.decoder_failed(run, camera, decoder);
                Decoded::Failed
            }
            Work::Decode { frame, wanted } => {
                if fails {
                    place.fail();
                    stage.checks.decoder_failed(run, camera, decoder);
                }
                if place.take(&frame.meta) || shows_all {
                    stage.checks.decoded(run, (camera, decoder), id);
                    if wanted { still(&frame) } else { Decoded::Passed }
                } else {
                    Decoded::NotHeld
                }
            }
            Work::Show(_) => match stills.log.get_frame(id) {
                Some(record) => still(&record.frame),
                None => Decoded::Failed,
            },
        };
        let decoded = match decoded {
            Decoded::Still { payload, encoding, width, height }
                if stage.bug == Some(Bug::StillMixedUp) && id.sequence.0.is_multiple_of(20) =>
            {
                Decoded::Still { payload: reduced(&payload), encoding, width, height }
            }
            decoded => decoded,
        };
        let shown = matches!(decoded, Decoded::Still { .. });
        stage.trace.record(stage.now, What::Decoded { edge: self.index, frame: id, shown });
        stills.maker.handle_decoded(now, decoder, id, decoded);
        self.make_stills(camera, stage);
        true
    }
}

/// Starts a decoder's work, which ends later.
fn begin(stage: &mut Stage<'_>, (edge, run, camera): (usize, u64, &CameraName), decoder: usize) {
    let fails = stage.codecs_fail && stage.random.one_in(DECODER_FAILS_ONCE_IN);
    let hangs = stage.codecs_fail && stage.random.one_in(DECODER_HANGS_ONCE_IN);
    let takes: Duration = ms(if hangs { HANG_MS } else { stage.random.within(DECODING_MS) });
    let fails = fails || hangs;
    stage
        .events
        .push(stage.now + takes, Event::Decoded { edge, run, camera: camera.clone(), decoder, fails });
}

/// Makes a still of a decoded frame. It has the same bytes, because worlds have no pixels.
fn still(frame: &Frame) -> Decoded {
    let (payload, encoding) = (frame.payload.clone(), Encoding::Jpeg);
    Decoded::Still { payload, encoding, width: frame.meta.width, height: frame.meta.height }
}

/// One camera's log on disk, for a reading that does not decode chains.
pub(super) struct OnDisk<'a> {
    pub(super) log: &'a mut KeptLog,
    pub(super) decoder: &'a mut Decoder,
    /// The edge's run, the camera, and the number of the decoder.
    pub(super) of: (u64, (&'a CameraName, usize)),
    pub(super) checks: &'a mut Checks,
}

impl PastFrames for OnDisk<'_> {
    type Error = std::convert::Infallible;

    fn find(&mut self, query: &PastQuery) -> Result<PastAnswer, Self::Error> {
        Ok(self.log.find(query))
    }

    fn find_again(&mut self, query: &PastQuery) -> Result<PastAnswer, Self::Error> {
        Ok(self.log.find_again(query))
    }

    fn decode(&mut self, record: &Record, task: PastTask) -> PastDecoded {
        let (run, (camera, decoder)) = self.of;
        if task.afresh {
            self.decoder.fail();
            self.checks.decoder_failed(run, camera, decoder);
        }
        let meta = &record.frame.meta;
        if !self.decoder.take(meta) {
            return PastDecoded::Failed;
        }
        self.checks.decoded(run, (camera, decoder), meta.id);
        if !task.wanted {
            return PastDecoded::Passed;
        }
        let mut still = record.clone();
        still.frame.meta.encoding = Encoding::Jpeg;
        still.frame.meta.chain = ChainLink::still(meta.id.sequence);
        PastDecoded::Still(Box::new(still))
    }
}
