mod failures;
mod pictures;
mod random;
mod readers;

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::frame::{Epoch, Reference, Sequence};
use crate::log::{LogConfig, LogWriter, log};
use crate::sample;
use crate::units::Timestamp;

const MS: Duration = Duration::from_millis(1);
const PICTURE_BYTES: usize = 200;

pub(super) fn id(sequence: u64) -> FrameId {
    FrameId { epoch: Epoch(1), sequence: Sequence(sequence) }
}

/// A frame of a chain, or a still if `chain` is `None`.
pub(super) fn record(sequence: u64, chain: Option<(u64, u32)>, bytes: usize) -> Record {
    let link = |(first, index): (u64, u32)| ChainLink {
        chain: Sequence(first),
        index,
        reference: if index == 0 { Reference::Independent } else { Reference::Previous },
    };
    let meta = FrameMeta {
        encoding: if chain.is_some() { Encoding::H264 } else { Encoding::Jpeg },
        chain: chain.map_or(ChainLink::still(Sequence(sequence)), link),
        ..sample::meta(id(sequence), Timestamp::from_nanos(sequence + 1))
    };
    sample::record(Frame { meta, payload: vec![sequence as u8; bytes].into() })
}

/// The same record in a chain in which every frame at a multiple of `every` refers to the frame `every` frames before it.
pub(super) fn anchored(mut record: Record, every: Option<u32>) -> Record {
    let chain = &mut record.frame.meta.chain;
    if let Some(every) = every.filter(|every| chain.index > 0 && chain.index.is_multiple_of(*every)) {
        chain.reference =
            Reference::Acknowledged(Sequence(record.frame.meta.id.sequence.0 - u64::from(every)));
    }
    record
}

/// A log, a maker of stills, and decoders that know only the frames that they were given.
struct Rig {
    now: Instant,
    log: LogWriter,
    maker: StillMaker,
    next: u64,
    /// The current chain, and how many frames it has.
    chain: (u64, u32),
    /// Every frame at a multiple of this refers to the frame this many frames before it.
    anchors: Option<u32>,
    /// The frames that each decoder holds, and the frame that it decoded last.
    held: [(BTreeSet<u64>, Option<u64>); DECODERS_MAX],
    /// Open tasks: the decoder, the frame, and the form wanted.
    work: VecDeque<(usize, u64, Option<Form>)>,
    /// Frames on which every decoder fails.
    damaged: BTreeSet<u64>,
    /// Frames on which only the next decoder fails.
    unlucky: BTreeSet<u64>,
    /// How often each frame was decoded.
    decoded: BTreeMap<u64, u32>,
    /// How many stills were made of each frame.
    made: BTreeMap<u64, u32>,
    /// How many pictures were made of each frame.
    pictures: BTreeMap<u64, u32>,
    picture_bytes: usize,
    /// Queries for pictures that were answered as overtaken.
    overtaken: BTreeSet<u64>,
    answers: BTreeMap<u64, Option<u64>>,
    asked: u64,
    chains_lost: u32,
    tried_again: Vec<u64>,
    released: usize,
}

impl Rig {
    fn new(bytes_max: u64) -> Self {
        let (log, reader) = log(LogConfig::with_bytes_max(bytes_max));
        Self {
            now: Instant::ZERO,
            log,
            maker: StillMaker::new(reader),
            next: 0,
            chain: (0, 0),
            anchors: None,
            held: Default::default(),
            work: VecDeque::new(),
            damaged: BTreeSet::new(),
            unlucky: BTreeSet::new(),
            decoded: BTreeMap::new(),
            made: BTreeMap::new(),
            pictures: BTreeMap::new(),
            picture_bytes: PICTURE_BYTES,
            overtaken: BTreeSet::new(),
            answers: BTreeMap::new(),
            asked: 0,
            chains_lost: 0,
            tried_again: Vec::new(),
            released: 0,
        }
    }

    /// Appends a frame: of the current chain, of a new chain, or a still.
    fn comes(&mut self, begins: bool, is_still: bool) -> u64 {
        let sequence = self.next;
        self.next += 1;
        if begins {
            self.chain = (sequence, 0);
        }
        let chain = (!is_still).then_some(self.chain);
        self.chain.1 += u32::from(!is_still);
        self.log.append_record(anchored(record(sequence, chain, 100), self.anchors)).unwrap();
        self.maker.handle_appended(self.now);
        self.perform();
        sequence
    }

    fn ask(&mut self, sequence: u64) -> u64 {
        self.ask_as(sequence, false)
    }

    fn ask_as(&mut self, sequence: u64, newest: bool) -> u64 {
        let question = self.asked;
        self.asked += 1;
        self.maker.handle_query(self.now, question, StillQuery { frame: id(sequence), newest });
        self.perform();
        question
    }

    fn ask_for_picture(&mut self, sequence: u64) -> u64 {
        let question = self.asked;
        self.asked += 1;
        self.maker.handle_picture_query(self.now, question, id(sequence));
        self.perform();
        question
    }

    fn perform(&mut self) {
        while let Some(output) = self.maker.poll_output() {
            match output {
                StillOutput::Decode { decoder, frame, afresh, wanted } => {
                    let sequence = frame.meta.id.sequence.0;
                    assert!(self.work.iter().all(|(busy, ..)| *busy != decoder), "a decoder has two frames");
                    let (held, _) = &mut self.held[decoder];
                    if afresh || frame.meta.chain.index == 0 {
                        held.clear();
                    }
                    let chain = frame.meta.chain;
                    let is_held = match chain.reference {
                        Reference::Independent => true,
                        Reference::Previous => held.iter().any(|held| *held >= chain.chain.0),
                        Reference::Acknowledged(refers) => held.contains(&refers.0),
                    };
                    assert!(is_held, "{sequence} is decoded behind {held:?}: {chain:?}");
                    self.work.push_back((decoder, sequence, wanted));
                }
                StillOutput::Show { decoder, frame, form } => {
                    assert_eq!(
                        self.held[decoder].1,
                        Some(frame.sequence.0),
                        "another frame was decoded last"
                    );
                    self.work.push_back((decoder, frame.sequence.0, Some(form)));
                }
                StillOutput::Release { decoder } => {
                    self.held[decoder] = Default::default();
                    self.released += 1;
                }
                StillOutput::Answer { question, answer } => {
                    let got = match answer {
                        StillAnswer::Still(record, _) => {
                            let meta = &record.frame.meta;
                            assert!(!meta.encoding.is_chained());
                            assert_eq!(record.frame.payload.first(), Some(&(meta.id.sequence.0 as u8)));
                            Some(meta.id.sequence.0)
                        }
                        StillAnswer::NotDecoded | StillAnswer::Overtaken | StillAnswer::Gone => None,
                    };
                    assert!(self.answers.insert(question, got).is_none(), "a question is answered twice");
                }
                StillOutput::Picture { question, answer } => {
                    let got = match answer {
                        PictureAnswer::Picture(picture) => Some(u64::from(picture.data[0])),
                        PictureAnswer::Overtaken => {
                            self.overtaken.insert(question);
                            None
                        }
                        PictureAnswer::NotDecoded => None,
                    };
                    assert!(self.answers.insert(question, got).is_none(), "a question is answered twice");
                }
                StillOutput::ChainLost => self.chains_lost += 1,
                StillOutput::TriesAgain { frame } => self.tried_again.push(frame.sequence.0),
            }
        }
    }

    /// Finishes the oldest task.
    fn work(&mut self) -> bool {
        let Some((decoder, sequence, wanted)) = self.work.pop_front() else { return false };
        self.now += MS;
        let (held, last) = &mut self.held[decoder];
        let decoded = if self.unlucky.remove(&sequence) || self.damaged.contains(&sequence) {
            held.clear();
            *last = None;
            Decoded::Failed
        } else {
            if *last != Some(sequence) {
                *self.decoded.entry(sequence).or_default() += 1;
            }
            held.insert(sequence);
            *last = Some(sequence);
            match wanted {
                Some(Form::Still) => {
                    *self.made.entry(sequence).or_default() += 1;
                    let payload = vec![sequence as u8; 50].into();
                    Decoded::Still { payload, encoding: Encoding::Jpeg, width: 4, height: 4 }
                }
                Some(Form::Picture) => {
                    *self.pictures.entry(sequence).or_default() += 1;
                    Decoded::Picture(Picture {
                        form: 0,
                        data: vec![sequence as u8; self.picture_bytes].into(),
                        size: (4, 4),
                        place: None,
                    })
                }
                None => Decoded::Passed,
            }
        };
        self.maker.handle_decoded(self.now, decoder, id(sequence), decoded);
        self.perform();
        true
    }

    fn settle(&mut self) {
        while self.work() {}
    }

    fn answer(&mut self, sequence: u64) -> Option<u64> {
        self.answer_as(sequence, false)
    }

    fn answer_as(&mut self, sequence: u64, newest: bool) -> Option<u64> {
        let question = self.ask_as(sequence, newest);
        self.settle();
        self.answers[&question]
    }
}

#[test]
fn nothing_is_decoded_until_somebody_looks() {
    let mut rig = Rig::new(1 << 20);
    for sequence in 0..20 {
        rig.comes(sequence % 8 == 0, false);
    }
    assert!(rig.work.is_empty() && rig.maker.is_idle());
    assert_eq!(rig.answer(18), Some(18));
    assert_eq!(rig.decoded.keys().copied().collect::<Vec<_>>(), [16, 17, 18], "from where its chain begins");
    assert_eq!(rig.made.keys().copied().collect::<Vec<_>>(), [18]);
}

/// A query for one frame costs the decodings that this frame needs. A decoder on its way continues over frames that were passed over.
#[test]
fn what_a_frame_does_not_need_is_passed_over() {
    let mut rig = Rig::new(1 << 20);
    rig.anchors = Some(10);
    (0..100).for_each(|sequence| _ = rig.comes(sequence == 0, false));
    assert_eq!(rig.answer(52), Some(52));
    let decoded = |rig: &mut Rig| std::mem::take(&mut rig.decoded).into_keys().collect::<Vec<_>>();
    assert_eq!(decoded(&mut rig), [0, 10, 20, 30, 40, 50, 51, 52]);
    assert_eq!(rig.answer(54), Some(54));
    assert_eq!(decoded(&mut rig), [53, 54]);
    assert_eq!(rig.answer(73), Some(73));
    assert_eq!(decoded(&mut rig), [60, 70, 71, 72, 73]);
    assert_eq!(rig.answer_as(99, true), Some(99));
    assert_eq!(decoded(&mut rig), [80, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99]);
    assert_eq!(rig.chains_lost, 0, "the newest is 19 decodings away from the beginning of its chain");
    // The other decoder starts at the first frame, because the first decoder is too far ahead.
    assert_eq!(rig.answer(61), Some(61));
    assert_eq!(decoded(&mut rig), [0, 10, 20, 30, 40, 50, 60, 61]);
    assert_eq!(rig.answer(75), Some(75));
    assert_eq!(decoded(&mut rig), [70, 71, 72, 73, 74, 75]);
}

/// Queries for scattered frames each cost the decodings that their frame needs: nothing is made ahead for a reader after a single query.
#[test]
fn a_look_anywhere_costs_what_its_frame_needs() {
    let mut rig = Rig::new(1 << 20);
    rig.anchors = Some(25);
    (0..300).for_each(|sequence| _ = rig.comes(sequence % 150 == 0, false));
    for look in 0..100 {
        let sequence = look * 97 % 300;
        assert_eq!(rig.answer(sequence), Some(sequence));
        let decoded: u32 = std::mem::take(&mut rig.decoded).values().sum();
        assert!(decoded <= 30, "{decoded} for {sequence}, which is at {} of its chain", sequence % 150);
    }
    assert!(rig.made.values().sum::<u32>() <= 100, "{:?}", rig.made);
}

/// A decoder that cannot continue has passed over too much. From then on, it decodes every frame of this chain.
#[test]
fn who_passed_over_too_much_goes_back_once() {
    let mut rig = Rig::new(1 << 20);
    for sequence in 0..60 {
        let mut record = record(sequence, Some((0, sequence as u32)), 100);
        if let Some(refers) = sequence.checked_sub(3) {
            record.frame.meta.chain.reference = Reference::Acknowledged(Sequence(refers));
        }
        rig.log.append_record(record).unwrap();
    }
    let decoded = |rig: &mut Rig, sequence| {
        assert_eq!(rig.answer(sequence), Some(sequence));
        std::mem::take(&mut rig.decoded).into_keys().collect::<Vec<_>>()
    };
    assert_eq!(decoded(&mut rig, 40), [0, 1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 34, 37, 40]);
    assert_eq!(decoded(&mut rig, 41), (0..42).collect::<Vec<_>>());
    assert_eq!(decoded(&mut rig, 43), [42, 43]);
}

/// Frames that are passed over for one query are not those that another one waits for.
#[test]
fn nobody_is_passed_over() {
    let mut rig = Rig::new(1 << 20);
    rig.anchors = Some(10);
    (0..100).for_each(|sequence| _ = rig.comes(sequence == 0, false));
    let asked: Vec<u64> = [60, 53, 75, 57, 53].into_iter().map(|sequence| rig.ask(sequence)).collect();
    rig.settle();
    assert!(asked.iter().all(|question| rig.answers[question].is_some()));
    assert!(rig.decoded.values().all(|times| *times == 1), "{:?}", rig.decoded);
    // Nor are they the frames that a reader takes next, who reads frame by frame.
    let mut rig = Rig::new(1 << 20);
    rig.anchors = Some(10);
    (0..100).for_each(|sequence| _ = rig.comes(sequence == 0, false));
    rig.held[1].1 = None;
    for sequence in 40..80 {
        let (one, other) = (rig.ask(sequence), rig.ask((sequence + 15).min(99)));
        rig.settle();
        assert!(rig.answers[&one].is_some() && rig.answers[&other].is_some());
    }
    let twice = rig.decoded.values().filter(|times| **times > 1).count();
    assert!(twice <= 20, "{:?}", rig.decoded);
}

/// For any number of readers, a frame is decoded once and one still is made of it.
#[test]
fn all_who_look_share_one_decoding_and_one_still() {
    let mut rig = Rig::new(1 << 20);
    let mut questions = Vec::new();
    for sequence in 0..60 {
        rig.comes(sequence % 25 == 0, false);
        questions.extend([rig.ask(sequence), rig.ask(sequence)]);
        if sequence % 3 == 0 {
            rig.settle();
        }
        questions.push(rig.ask(sequence));
        rig.settle();
    }
    assert!(questions.iter().all(|question| rig.answers[question].is_some()));
    assert!(rig.decoded.values().all(|times| *times == 1), "{:?}", rig.decoded);
    assert!(rig.made.values().all(|times| *times == 1), "{:?}", rig.made);
    assert!(rig.held[1].1.is_none(), "a second decoder is for those who look elsewhere");
}

/// For a reader of every third frame, only pictures of these frames are made, and the decoder is already there when the reader asks.
#[test]
fn a_decoder_follows_whoever_takes_some_frames() {
    let mut rig = Rig::new(1 << 20);
    for sequence in 0..90 {
        rig.comes(sequence == 0, false);
        rig.settle();
        if sequence % 3 == 2 {
            let before = rig.decoded.len();
            assert_eq!(rig.answer_as(sequence, true), Some(sequence));
            assert!(sequence == 2 || rig.decoded.len() - before == 1, "one decoding from the frame");
        }
        rig.now += MS * 33;
    }
    assert_eq!((rig.decoded.len(), rig.made.len()), (90, 30));
    assert!(rig.decoded.values().all(|times| *times == 1));
}

/// A reader of every frame that is behind finds the decoder where it was before.
#[test]
fn who_reads_on_behind_the_newest_frame_is_decoded_for_once() {
    let mut rig = Rig::new(1 << 20);
    for sequence in 0..100 {
        rig.comes(sequence == 0, false);
    }
    for sequence in 0..100 {
        assert_eq!(rig.answer(sequence), Some(sequence));
        rig.now += MS;
        if sequence % 4 == 0 {
            rig.comes(false, false);
            rig.settle();
        }
    }
    assert!(rig.decoded.values().all(|times| *times == 1), "{:?}", rig.decoded);
}

/// Two readers of the past share one decoder. The decoder of the newest frames continues.
#[test]
fn who_looks_at_the_past_does_not_hold_up_those_who_take_the_newest() {
    let mut rig = Rig::new(1 << 20);
    let mut past = Vec::new();
    for sequence in 0..300 {
        rig.comes(sequence % 100 == 0, false);
        rig.settle();
        if sequence % 50 == 49 {
            past.extend([rig.ask(sequence - 40), rig.ask(sequence / 3)]);
        }
        let newest = rig.ask_as(sequence, true);
        let decoded = (0..4).take_while(|_| !rig.answers.contains_key(&newest) && rig.work()).count();
        assert!(rig.answers.contains_key(&newest), "{sequence} waits behind {decoded} others");
        rig.now += MS * 33;
    }
    rig.settle();
    assert!(past.iter().all(|question| rig.answers[question].is_some()));
}

/// After a single query, a decoder does not follow the log for ever.
#[test]
fn decoders_rest_and_let_go() {
    let mut rig = Rig::new(1 << 20);
    rig.comes(true, false);
    assert_eq!(rig.answer_as(0, true), Some(0));
    let until = rig.now + FOLLOW_MAX;
    while rig.now < until + MS * 500 {
        rig.comes(false, false);
        rig.settle();
        rig.now += MS * 40;
    }
    assert!(rig.decoded.len() < rig.next as usize - 5, "it went on for two seconds");
    assert_eq!(rig.released, 0);
    rig.now = rig.maker.poll_timeout().unwrap();
    rig.maker.handle_timeout(rig.now);
    rig.perform();
    assert_eq!((rig.released, rig.maker.is_idle(), rig.maker.poll_timeout()), (1, true, None));
    let newest = rig.next - 1;
    assert_eq!(rig.answer(newest), Some(newest), "and begins again");
}

/// A reader of the newest still that comes late into a long chain does not wait for all of it: the camera is asked for another chain.
#[test]
fn who_comes_late_into_a_long_chain_is_served_by_the_next() {
    let mut rig = Rig::new(1 << 20);
    for sequence in 0..300 {
        rig.comes(sequence == 0, false);
    }
    let late = rig.ask_as(299, true);
    assert_eq!(rig.chains_lost, 1);
    for _ in 0..20 {
        rig.work();
    }
    assert!(!rig.answers.contains_key(&late));
    let begins = rig.comes(true, false);
    assert_eq!(rig.answers.get(&late), Some(&None), "it takes the newer one");
    let newest = rig.ask_as(begins, true);
    rig.settle();
    assert_eq!((rig.answers[&newest], rig.decoded.len() < 40), (Some(begins), true));
    assert_eq!(rig.answer(280), Some(280), "who wants that one and no other gets it");
    // Without another chain, the old chain is decoded.
    let mut rig = Rig::new(1 << 20);
    for sequence in 0..100 {
        rig.comes(sequence == 0, false);
    }
    let late = rig.ask_as(99, true);
    rig.settle();
    assert_eq!((rig.answers[&late], rig.chains_lost), (Some(99), 1));
}

/// A still in the log is its own answer.
#[test]
fn a_still_needs_no_decoder() {
    let mut rig = Rig::new(1 << 20);
    rig.comes(true, false);
    let still = rig.comes(false, true);
    assert_eq!(rig.answer(still), Some(still));
    assert!(rig.decoded.is_empty());
}
