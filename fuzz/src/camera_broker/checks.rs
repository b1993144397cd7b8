//! Checks every output of the broker before carrying it out.

use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::broker::camera::CameraOutput;
use mez_core::frame::{FrameId, Reference, Rung, Sequence};
use mez_core::history::still_of_video;
use mez_core::wire::{
    FRAME_HEADER_BYTES_MAX, FrameHeader, Message, PROFILE_BYTES_MAX, SKIP_RANGES_MAX, SurveyAnswer,
};

use super::{LINKS_MAX, LOOKS_MAX, OUTPUTS_MAX, World};
use crate::edge_broker::crosses;

impl World {
    /// Carries out all outputs of the broker.
    pub(super) fn drain(&mut self) {
        let mut outputs = 0;
        while let Some(output) = self.broker.poll_output() {
            outputs += 1;
            assert!(outputs <= OUTPUTS_MAX, "one event asks for more than {OUTPUTS_MAX} things");
            match output {
                CameraOutput::Dial { edge } => self.dials.push(edge),
                CameraOutput::Send { link, message } => {
                    self.says(link, &message);
                    crosses(message);
                }
                CameraOutput::Transform(transform) => {
                    assert!(transform.deadline > self.now);
                    assert!(self.making.is_none(), "two frames are being made");
                    self.making = Some(transform);
                }
                CameraOutput::ReadProfile { hash, bytes } => {
                    assert!(!bytes.is_empty() && bytes.len() <= PROFILE_BYTES_MAX as usize);
                    self.reading.push_back(hash);
                    assert!(self.reading.len() <= LOOKS_MAX, "profiles pile up");
                }
                CameraOutput::TransformPast { ticket, transform } => {
                    assert!(transform.deadline > self.now && transform.setting.stands_alone());
                    assert_eq!(transform.reference, Reference::Independent);
                    assert!(self.making.is_none(), "a frame of the past is made beside a live one");
                    assert!(self.making_past.is_none(), "two frames of the past are being made");
                    self.making_past = Some((ticket, transform));
                }
                CameraOutput::ReadHistory { ticket, query } => {
                    assert!(self.looks.iter().all(|(other, _)| *other < ticket), "a ticket is used twice");
                    self.looks.push_back((ticket, query));
                    if self.looks.len() > LOOKS_MAX {
                        // An unwanted look-up may be requested again and again; a driver drops it.
                        self.looks.pop_front();
                    }
                }
                CameraOutput::Survey { begin, end } => {
                    assert!(begin <= end);
                    assert_eq!(self.surveying.replace((begin, end)), None, "two surveys at once");
                }
                CameraOutput::SendFrame { link, header, payload } if header.history > 0 => {
                    self.sends_past(link, &header, &payload);
                }
                CameraOutput::SendFrame { link, header, payload } => self.sends(link, &header, &payload),
                CameraOutput::Reset { link, frame } => {
                    let known =
                        self.links.get_mut(&link).expect("a frame is reset on a connection that is there");
                    let sending = known.sending.take_if(|sending| *sending == frame).is_some();
                    let waits = known.unacknowledged.contains(&frame);
                    known.unacknowledged.retain(|other| *other != frame);
                    assert!(sending || waits, "frame {frame} is reset, and is not on its way");
                    self.lost.insert(frame);
                }
                CameraOutput::Close { link } => {
                    assert!(self.links.contains_key(&link), "a connection is closed once");
                    self.gone(link);
                }
                CameraOutput::RaiseEpoch { above } => {
                    assert!(above >= self.broker.epoch());
                    self.raise = Some(above);
                }
                CameraOutput::AskKeyFrame
                | CameraOutput::Refused { .. }
                | CameraOutput::LinkChanged { .. }
                | CameraOutput::Revocations { .. }
                | CameraOutput::Answer(_)
                | CameraOutput::AnswersSkipped(_)
                | CameraOutput::Reply { .. } => {}
            }
        }
        assert_eq!(self.broker.is_up(), self.broker.edge().is_some());
        assert!(self.links.len() <= LINKS_MAX, "{} connections", self.links.len());
        assert!(self.dials.len() <= LINKS_MAX, "{} attempts at once", self.dials.len());
    }

    /// Checks a message that the broker sends.
    fn says(&mut self, link: LinkId, message: &Message) {
        let known = self.links.get(&link);
        let known = known.unwrap_or_else(|| panic!("{message:?} on a connection that is closed"));
        match message {
            Message::ProfileRequest(request) => {
                let named =
                    known.demand.contracts.iter().any(|contract| contract.profile == Some(request.hash));
                assert!(named, "a profile is asked for that no contract names");
                assert!(request.offset <= PROFILE_BYTES_MAX);
                self.profile_offset = request.offset;
            }
            Message::HistoryEnd(end) => {
                assert!(self.was_asked(link, end.request), "{end:?} was not asked for");
                self.answers += 1;
            }
            Message::SurveyAnswer(SurveyAnswer { begin, survey: Ok(survey), .. }) => {
                let end = *begin + Duration::from_millis(u32::MAX.into());
                assert_eq!(survey.check(*begin, end), Ok(()), "no edge believes {survey:?}");
            }
            _ => {}
        }
    }

    fn was_asked(&self, link: LinkId, number: u64) -> bool {
        // The numbers of a request may end at the highest number.
        let holds = |(of, numbers): &(LinkId, std::ops::Range<u64>)| {
            *of == link && (numbers.contains(&number) || numbers.end == number)
        };
        self.asked.iter().any(holds)
    }

    /// Checks a past frame that the broker sends.
    fn sends_past(&mut self, link: LinkId, header: &FrameHeader, payload: &Bytes) {
        let frame = header.meta.id;
        let known = self.links.get(&link).expect("a frame is sent on a connection that is there");
        assert!(known.welcomed, "frame {frame} of the past is sent before the edge has said welcome");
        assert_eq!(known.sending, None, "frame {frame} of the past is sent while a live one leaves");
        assert!(payload.len() <= known.frame_bytes_max as usize, "the edge does not take frame {frame}");
        assert_eq!(header.payload_bytes as usize, payload.len());
        assert!(frame.epoch <= self.broker.epoch());
        let rung = header.meta.rung.as_str();
        // The original of a source's own video is sent as a still, and a data record is unchanged at every rung.
        let is_still_of_video = header.meta.rung == still_of_video().rung();
        let is_whole = rung == Rung::ORIGINAL && !header.meta.encoding.is_picture();
        let asked = |wanted: &str| self.rungs.iter().any(|asked| *asked == wanted);
        assert!(
            asked(rung) || is_whole || is_still_of_video && asked(Rung::ORIGINAL),
            "nobody asked for {rung}"
        );
        assert!(!header.meta.encoding.is_chained(), "a frame of the past that needs others");
        assert!(self.was_asked(link, header.history), "{} was not asked for", header.history);
        assert_eq!(self.past.replace((link, header.history)), None, "two frames of the past at once");
        self.fits(header);
        self.answers += 1;
    }

    fn fits(&self, header: &FrameHeader) {
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        assert!(bytes.len() <= FRAME_HEADER_BYTES_MAX);
        // The wire transmits only whole microseconds of instants.
        let read = FrameHeader::decode(&bytes).map(|read| FrameHeader { trace: header.trace, ..read });
        assert_eq!(read.as_ref(), Ok(header));
    }

    /// Checks a frame that the broker sends.
    fn sends(&mut self, link: LinkId, header: &FrameHeader, payload: &Bytes) {
        let frame = header.meta.id;
        let chain = (frame.epoch, header.meta.chain.chain);
        let refers = match header.meta.chain.reference {
            Reference::Independent => None,
            Reference::Previous => {
                let (carrier, last) = self.chained.get(&chain).expect("a frame refers to one that was sent");
                assert_eq!(*carrier, link, "frame {frame} refers to one of another connection");
                Some(*last)
            }
            Reference::Acknowledged(sequence) => Some(FrameId { sequence, ..frame }),
        };
        if let Some(refers) = refers {
            assert!(!self.lost.contains(&refers), "frame {frame} refers to {refers}, which was lost");
        }
        if header.meta.encoding.is_chained() {
            self.chained.insert(chain, (link, frame));
        }
        let known = self.links.get_mut(&link).expect("a frame is sent on a connection that is there");
        assert!(known.welcomed, "frame {frame} is sent before the edge has said welcome");
        assert!(!known.demand.contracts.is_empty(), "frame {frame} is sent though nobody wants it");
        assert_eq!(known.sending.replace(frame), None, "frame {frame} is sent beside another");
        assert_eq!(frame.epoch, known.epoch, "frame {frame} is of another epoch than its connection");
        known.newest_sent = Some(frame);
        known.bytes.insert(frame, (header.payload_bytes, 0));
        assert!(self.last_sent.is_none_or(|last| last < frame), "{frame} after {:?}", self.last_sent);
        self.last_sent = Some(frame);
        assert_eq!(header.payload_bytes as usize, payload.len());
        assert!(payload.len() <= known.frame_bytes_max as usize, "the edge does not take frame {frame}");

        self.fits(header);
        assert!(header.skipped.len() <= SKIP_RANGES_MAX);
        let mut end = Sequence(0);
        for range in &header.skipped {
            assert!(
                range.count > 0 && range.first >= end && range.end() <= frame.sequence,
                "{:?}",
                header.skipped
            );
            end = range.end();
        }
        if self.keeps_all && header.skipped.len() < SKIP_RANGES_MAX {
            let first = self.told.map_or(0, |told| told.0.saturating_add(1));
            for sequence in first..frame.sequence.0 {
                let earlier = FrameId { sequence: Sequence(sequence), ..frame };
                let accounted =
                    header.skipped.iter().any(|range| (range.first..range.end()).contains(&earlier.sequence));
                let being_made = self.making.as_ref().is_some_and(|making| making.frame.meta.id == earlier);
                let on_its_way = being_made
                    || self
                        .links
                        .values()
                        .any(|link| link.unacknowledged.contains(&earlier) || link.sending == Some(earlier));
                assert!(
                    accounted || on_its_way,
                    "frame {earlier} is neither on its way nor accounted for with {frame}: {:?}",
                    header.skipped
                );
            }
        }
        self.sent.insert(frame);
    }
}
