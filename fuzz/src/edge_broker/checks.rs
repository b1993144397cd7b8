//! Checks every output of the edge broker before carrying it out, and the state at the end.

use mez_core::broker::edge::{EdgeOutput, Peer, SubscriptionId};
use mez_core::broker::{EPOCH_MAX, LinkId};
use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::history::PastAnswer;
use mez_core::name::CameraName;
use mez_core::session::Session;
use mez_core::subscription::SubscriptionSpec;
use mez_core::units::{ClockAnchor, Instant, Timestamp};
use mez_core::wire::{Hello, HistoryCode, HistoryEnd, HistoryRequest, Message, VERSION};

use super::applications::past_query;
use super::cameras::header;
use super::{
    ASKED_MAX, CAMERAS_MAX, LOG_BYTES_MAX, ORIGIN, OUTPUTS_MAX, Reader, SUBSCRIPTIONS, World, crosses,
};

impl World {
    /// Carries out all outputs of the broker.
    pub(super) fn drain(&mut self) {
        let mut outputs = 0;
        while let Some(output) = self.broker.poll_output() {
            outputs += 1;
            assert!(outputs <= OUTPUTS_MAX, "one event asks for more than {OUTPUTS_MAX} things");
            match output {
                EdgeOutput::Send { link, message } => {
                    assert!(!self.closed.contains(&link), "{message:?} on a connection that is closed");
                    if link != LinkId(u64::MAX) {
                        assert!(self.slots.contains(&Some(link)));
                    }
                    if let Message::HistoryRequest(request) = &message {
                        self.is_asked(link, request);
                    }
                    crosses(message);
                }
                EdgeOutput::Close { link } => {
                    self.closed.insert(link);
                    for slot in &mut self.slots {
                        slot.take_if(|other| *other == link);
                    }
                }
                EdgeOutput::Attach { subscription, camera, log } => {
                    self.logs.insert(camera.clone(), log.clone());
                    if let Some(reader) = self.readers.get_mut(&subscription) {
                        let present = log.held().end;
                        reader.session.handle_attach(self.now, camera, log, present);
                    }
                }
                EdgeOutput::History { request, answer } => self.answered(request, &answer),
                EdgeOutput::Surveyed { question, survey } => {
                    let asked = self.surveys.remove(&question);
                    let (begin, end) = asked.expect("a survey is told once, to whoever waits for it");
                    if let Ok(survey) = survey {
                        assert_eq!(survey.check(begin, end), Ok(()));
                    }
                }
                // A reset may end a subscription before it has read its frames.
                EdgeOutput::Ended { subscription, .. } => drop(self.readers.remove(&subscription)),
                EdgeOutput::Appended { .. }
                | EdgeOutput::Started { .. }
                | EdgeOutput::ViewChanged { .. }
                | EdgeOutput::SourceChanged { .. }
                | EdgeOutput::Detach { .. }
                | EdgeOutput::Revocations { .. }
                | EdgeOutput::SendAnswer { .. }
                | EdgeOutput::ResetAnswer { .. }
                | EdgeOutput::CameraChanged { .. } => {}
            }
        }
        // This number stands for "no connection" in a script.
        self.closed.remove(&LinkId(u64::MAX));
    }

    /// Checks a request to a camera for the past.
    fn is_asked(&mut self, link: LinkId, request: &HistoryRequest) {
        let numbers = self.asked.entry(link).or_default();
        if request.count == 0 {
            return;
        }
        for number in request.request..request.request + u64::from(request.count) {
            assert!(!numbers.contains(&number), "the number {number} is asked for twice");
            numbers.push_front(number);
        }
        numbers.truncate(ASKED_MAX);
    }

    /// Checks the answer to a request for the past.
    fn answered(&mut self, question: u64, answer: &PastAnswer) {
        let Some(query) = self.questions.remove(&question) else {
            panic!("question {question} is answered twice, or though nobody waits any more")
        };
        if let Some(record) = &answer.record {
            let meta = &record.frame.meta;
            assert!(query.spans(meta.id), "frame {} was not asked for", meta.id);
            assert!(meta.captured <= query.end, "frame {} is too late", meta.id);
            self.last_past = Some(meta.id);
        }
    }

    pub(super) fn check(&self) {
        let cameras = self.broker.cameras(self.now);
        assert!(cameras.len() <= CAMERAS_MAX);
        assert_eq!(self.broker.matching(&"**".parse().unwrap()), cameras.len());
        assert!(self.questions.len() <= crate::script::STEPS_MAX);
        // No reader keeps a record, so only the logs count.
        let bytes: u64 = cameras.iter().map(|camera| camera.log_bytes).sum();
        assert!(bytes <= LOG_BYTES_MAX, "the logs hold {bytes} bytes");
    }

    /// A known camera, or the first one, connects and behaves. So does an application.
    pub(super) fn recover(&mut self) {
        let cameras = self.broker.cameras(self.now);
        let name = cameras.first().map_or("dock/cam1".into(), |camera| camera.camera.to_string());
        let name: CameraName = name.parse().unwrap();
        let id = SubscriptionId(u64::from(SUBSCRIPTIONS));
        self.subscribe_to_all(id);
        while !self.stills.is_empty() {
            self.still_made();
        }
        let mut epoch = Epoch(1);
        for _ in 0..3 {
            let link = LinkId(self.links);
            self.links += 1;
            self.slots[0] = Some(link);
            let peer = Peer { identity: "spiffe://site/camera".into(), cameras: vec!["**".parse().unwrap()] };
            self.broker.handle_connected(self.now, link, peer);
            let hello = Hello {
                version: VERSION,
                camera: name.clone(),
                epoch,
                attempt: 1,
                // Unlike the anchors of camera starts in the script, which have whole seconds.
                anchor: ClockAnchor { wall: ORIGIN, monotonic: Instant::from_nanos(1) },
                software: String::new(),
            };
            self.broker.handle_message(self.now, link, Message::Hello(hello));
            let (mut newest, mut wanted, mut closed) = (None, false, false);
            while let Some(output) = self.broker.poll_output() {
                match output {
                    EdgeOutput::Send { message: Message::Welcome(welcome), .. } => newest = welcome.newest,
                    EdgeOutput::Send { message: Message::Demand(demand), .. } => {
                        wanted = !demand.contracts.is_empty();
                    }
                    EdgeOutput::Close { .. } => closed = true,
                    EdgeOutput::Attach { camera, log, .. } => {
                        if let Some(reader) = self.readers.get_mut(&id) {
                            let present = log.held().end;
                            reader.session.handle_attach(self.now, camera, log, present);
                        }
                    }
                    _ => {}
                }
            }
            if closed {
                let Some(FrameId { epoch: taken, .. }) = newest else {
                    // An earlier run of the edge left this epoch.
                    let forgotten = self.broker.handle_reset(&name).expect("it is known");
                    assert!(forgotten.epoch > EPOCH_MAX, "it is refused because of {forgotten:?}");
                    self.drain();
                    self.subscribe_to_all(id);
                    continue;
                };
                assert!(taken < EPOCH_MAX, "somebody who may be this camera has used up its epochs");
                epoch = Epoch(taken.0.max(epoch.0) + 1);
                continue;
            }
            assert!(wanted, "a camera that somebody wants is not told");
            let frame = FrameId { epoch, sequence: Sequence(0) };
            let taken = self.broker.handle_frame_header(self.now, link, header(frame, 0, 0));
            assert_eq!(taken, Ok(()));
            self.broker.handle_frame_complete(self.now, link, frame, vec![0; 64].into());
            self.drain();
            let delivered = self.delivered;
            self.read(id, 0);
            assert_eq!(self.delivered, delivered + 1, "a frame that arrived is not delivered");
            self.recover_past(&name, link);
            return;
        }
        panic!("a camera that does as it is told is not taken in");
    }

    fn subscribe_to_all(&mut self, id: SubscriptionId) {
        let spec = SubscriptionSpec::live("**".parse().unwrap());
        self.readers.insert(id, Reader::new(Session::at_edge(self.clock(), &spec, id, None)));
        self.broker.handle_subscribe(self.clock(), id, spec);
        self.drain();
    }

    /// Requests the past from the camera, and passes the answer on to the reader.
    fn recover_past(&mut self, name: &CameraName, link: LinkId) {
        assert!(self.questions.is_empty(), "an hour later questions are open: {:?}", self.questions);
        assert!(self.surveys.is_empty(), "an hour later surveys are awaited: {:?}", self.surveys);
        self.asked.clear();
        let query = past_query((None, None), (Timestamp::MIN, Timestamp::MAX), true);
        let question = self.broker.handle_history_query(self.now, name, query);
        self.questions.insert(question, query);
        self.drain();
        let number = self.asked.get(&link).and_then(|numbers| numbers.front().copied());
        let number = number.expect("a camera that behaves is asked for the past");
        let end = HistoryEnd { request: number, code: HistoryCode::None, held_from: None };
        self.broker.handle_message(self.now, link, Message::HistoryEnd(end));
        self.drain();
        assert!(self.questions.is_empty(), "who asked is not told that there is nothing");
    }
}
