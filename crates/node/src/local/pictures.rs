//! Hands decoded pictures to programs on the broker's host, beside their frames.
//!
//! A picture is in the memory of its camera, which all programs that get it map for reading
//! (`pictures/memory.rs`). A program marks in a separate memory the pictures that it has finished with. It holds
//! at most three. While it holds three, and until it has mapped both memories, pictures go through the socket.
//!
//! A frame waits for its picture. Only later events of the same camera wait with it.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use mez_core::frame::Encoding;
use mez_core::stills::{Picture, PictureAnswer};
use tokio::net::unix::OwnedWriteHalf;

use super::Place;
use super::packet::{Kind, PacketError, PacketWriter};
use super::shared::{
    LEASES, LEASES_NUMBER, Layout, Leases, MappedByClient, Meter, Share, cannot, is_for_pictures,
};
use crate::api::ApiError;
use crate::api::feed::{Feed, Told};
use crate::api::lent::Payload;
use crate::api::pb;
use crate::api::pb::subscribe_event::Event;
use crate::api::principal::Principal;
use crate::pictures::{Beside, Choice, Mapping, MayMap, PictureMemory, picture_bytes_max};

/// The most events of one camera that wait behind a frame for its picture. Beyond that, the subscription waits.
const WAITING_MAX: usize = 32;

/// The message of a packet of [`Kind::Picture`].
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct PictureHead {
    /// The format of the samples. 0: there is no picture, and the frame need not be decoded, because a later frame has a picture.
    #[prost(uint32, tag = "1")]
    pub(crate) form: u32,
    /// Pixels in a row.
    #[prost(uint32, tag = "2")]
    pub(crate) width: u32,
    /// Rows.
    #[prost(uint32, tag = "3")]
    pub(crate) height: u32,
    /// The number with which the program marks the picture as finished, if the picture is in a memory.
    #[prost(uint32, tag = "4")]
    pub(crate) lease: u32,
}

/// What a subscriber has reported about shared memory. Written by the task that reads from the subscriber.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) frames: MappedByClient,
    pictures: MappedForPictures,
    takes_pictures: AtomicBool,
}

/// The memories of pictures that the client has mapped: a bit for each number.
#[derive(Debug, Default)]
struct MappedForPictures([AtomicU64; 2]);

impl MappedForPictures {
    /// The bit of a number. Numbers of pictures are above those of payloads of frames.
    fn bit(&self, number: u8) -> (&AtomicU64, u64) {
        let place = number - LEASES_NUMBER;
        (&self.0[usize::from(place / 64)], 1 << (place % 64))
    }

    fn set(&self, number: u8, is_mapped: bool) {
        let (word, bit) = self.bit(number);
        match is_mapped {
            true => word.fetch_or(bit, Ordering::Relaxed),
            false => word.fetch_and(!bit, Ordering::Relaxed),
        };
    }

    fn has(&self, number: u8) -> bool {
        let (word, bit) = self.bit(number);
        word.load(Ordering::Relaxed) & bit != 0
    }
}

impl Said {
    /// The client has mapped a memory.
    pub(super) fn mapped(&self, number: u8) {
        if is_for_pictures(number) { self.pictures.set(number, true) } else { self.frames.set(number) }
    }

    /// The client accepts pictures.
    pub(super) fn takes_pictures(&self) {
        self.takes_pictures.store(true, Ordering::Relaxed);
    }
}

/// The pictures of one subscription.
pub(super) struct Pictures<'a> {
    said: &'a Said,
    lent: Lent<'a>,
    /// The budget of the pictures. `None`: none are sent.
    meter: Option<Meter>,
    /// The size of the room for one picture that goes through the socket, and its shares.
    room: Option<(usize, Vec<Share>)>,
    waiting: Waiting<Told, Answer>,
}

impl<'a> Pictures<'a> {
    pub(super) fn new(said: &'a Said, principal: &Principal) -> Self {
        let meter = match principal {
            Principal::User { uid } => Some(Meter::pictures_of(*uid)),
            Principal::Member(_) => None,
        };
        let lent = Lent::new(&said.pictures, meter.as_ref().map(Meter::of_user_alone));
        Self { said, lent, meter, room: None, waiting: Waiting::default() }
    }

    /// Whether no event waits for a picture.
    pub(super) fn are_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether too many events wait for pictures to take more.
    pub(super) fn are_full(&self) -> bool {
        self.waiting.is_full()
    }

    /// Takes an event. Returns it with its picture, unless it must wait.
    pub(super) fn take(&mut self, mut told: Told, feed: &mut Feed) -> Option<(Told, Beside)> {
        let choice = match &told.event {
            Event::Frame(frame) => self.choose(frame, feed),
            _ => Choice::Nothing,
        };
        let camera = camera_of(&told.event).map(str::to_owned);
        let is_last = matches!(told.event, Event::Ended(_));
        let answer = match choice {
            Choice::Asked(asked) => Answer::Asked(asked),
            Choice::Passed => Answer::Known(Beside::Passed),
            Choice::Nothing => Answer::Known(Beside::Nothing),
        };
        let goes_at_once = !self.waiting.holds_back(camera.as_deref(), is_last);
        if goes_at_once && let Answer::Known(beside) = answer {
            return Some((told, beside));
        }
        if let Some(payload) = &mut told.payload {
            payload.wait();
        }
        self.waiting.push(camera, told, answer);
        None
    }

    fn choose(&mut self, frame: &pb::Frame, feed: &mut Feed) -> Choice {
        match bytes_of(frame).filter(|_| self.said.takes_pictures.load(Ordering::Relaxed)) {
            Some(bytes) => feed.choose_beside(frame, || self.has_room(bytes)),
            None => Choice::Nothing,
        }
    }

    /// Whether a picture of `bytes` can be handed over, through the socket if necessary.
    fn has_room(&mut self, bytes: usize) -> bool {
        let Some(meter) = &self.meter else { return false };
        if self.room.as_ref().is_none_or(|(room, _)| *room < bytes) {
            self.room = None;
            self.room = meter.take(bytes as u64).map(|shares| (bytes, shares));
        }
        self.room.is_some()
    }

    /// The next event that need not wait any longer, with its picture. Cancel safe.
    pub(super) async fn ready(&mut self) -> Came {
        let (told, answer) = poll_fn(|context| self.waiting.poll(context)).await;
        Came { told, answer }
    }

    /// Queues the picture of a frame. The frame must be written next.
    pub(super) async fn queue(
        &mut self,
        beside: &Beside,
        (event, payload): (&Event, Option<&mut Payload>),
        memory: Option<MayMap>,
        writer: &mut PacketWriter<OwnedWriteHalf>,
    ) -> Result<(), PacketError> {
        match (beside, event) {
            (Beside::Passed, _) => writer.queue(Kind::Picture, &PictureHead::default(), None)?,
            // The picture may be larger than its frame says.
            (Beside::Picture(picture), Event::Frame(frame)) if self.has_room(picture.data.len()) => {
                self.queue_picture((&frame.camera, picture), memory, payload, writer).await?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn queue_picture(
        &mut self,
        (camera, picture): (&str, &Picture),
        memory: Option<MayMap>,
        payload: Option<&mut Payload>,
        writer: &mut PacketWriter<OwnedWriteHalf>,
    ) -> Result<(), PacketError> {
        let (width, height) = picture.size;
        let head = PictureHead { form: picture.form.into(), width, height, lease: 0 };
        if let Some((place, lease)) = self.lent.lend(camera, picture) {
            return Ok(writer.queue(Kind::Picture, &PictureHead { lease, ..head }, Some(place))?);
        }
        if let Some(payload) = payload {
            payload.wait();
        }
        writer.write(Kind::Picture, &head, picture.data.clone()).await?;
        match memory {
            Some(memory) => self.lent.offer(camera, memory, writer).await,
            None => Ok(()),
        }
    }
}

/// The pictures that are lent to a program, and their memories.
struct Lent<'a> {
    mapped: &'a MappedForPictures,
    /// The budget of the pictures that the program may hold, which is its user's. `None`: nothing is lent to it.
    meter: Option<Meter>,
    leases: Option<Leases>,
    /// The largest picture size for which all leases have room, and their shares.
    room: Option<(u64, Vec<Share>)>,
    /// The number of the last offered memory.
    last: u8,
    /// The last offered memory of each camera.
    cameras: HashMap<String, Given>,
}

/// A memory that was offered to the program.
struct Given {
    number: u8,
    memory: u64,
    _mapping: Arc<Mapping>,
}

impl<'a> Lent<'a> {
    fn new(mapped: &'a MappedForPictures, meter: Option<Meter>) -> Self {
        Self { mapped, meter, leases: None, room: None, last: LEASES_NUMBER, cameras: HashMap::new() }
    }

    /// Lends a picture of a camera. Returns its address and the number of the lease. `None`: it must go through the socket.
    fn lend(&mut self, camera: &str, picture: &Picture) -> Option<(Place, u32)> {
        let place = picture.place?;
        let given = self.cameras.get(camera).filter(|given| given.memory == place.memory)?;
        if !self.mapped.has(LEASES_NUMBER) || !self.mapped.has(given.number) {
            return None;
        }
        let bytes = u32::try_from(picture.data.len()).ok()?;
        let lease = self.leases.as_mut()?.lend(picture.data.clone())?;
        Some((Place { memory: given.number, slot: place.slot, bytes }, lease.into()))
    }

    /// After a picture went through the socket: offers the memory of its camera to the program, if this was not done yet.
    async fn offer(
        &mut self,
        camera: &str,
        MayMap { memory, rights }: MayMap,
        writer: &mut PacketWriter<OwnedWriteHalf>,
    ) -> Result<(), PacketError> {
        let before = self.cameras.get(camera).map(|given| (given.memory, given.number));
        if before.is_some_and(|(known, _)| known == memory.number()) || !self.has_room(&memory) {
            return Ok(());
        }
        if let Some(words) = self.begin() {
            writer.write_memory(Leases::layout(), words.as_fd()).await?;
        }
        let Some(number) = self.number() else { return Ok(()) };
        if let Some((_, before)) = before {
            self.mapped.set(before, false);
            writer.write(Kind::Memory, &(), Bytes::copy_from_slice(&Layout::none(before).encode())).await?;
        }
        self.mapped.set(number, false);
        let given = Given { number, memory: memory.number(), _mapping: memory.give(rights) };
        self.cameras.insert(camera.to_owned(), given);
        Ok(writer.write_memory(memory.layout(number), memory.as_fd()).await?)
    }

    /// Makes the memory in which the program marks finished pictures, if there is none.
    fn begin(&mut self) -> Option<OwnedFd> {
        if self.leases.is_some() {
            return None;
        }
        let (leases, words) = Leases::create().map_err(|error| cannot(&error)).ok()?;
        self.leases = Some(leases);
        Some(words)
    }

    /// A number that no memory of the program has.
    fn number(&mut self) -> Option<u8> {
        let all = LEASES_NUMBER + 1..=u8::MAX;
        let after = (self.last.checked_add(1).unwrap_or(LEASES_NUMBER + 1)..=u8::MAX).chain(all);
        let is_free = |number: &u8| !self.cameras.values().any(|given| given.number == *number);
        let found = after.into_iter().find(is_free);
        self.last = found.unwrap_or(self.last);
        found
    }

    /// Whether there is room for as many pictures of this size as there are leases.
    fn has_room(&mut self, memory: &PictureMemory) -> bool {
        let (Some(meter), bytes) = (&self.meter, memory.slot_bytes()) else { return false };
        if self.room.as_ref().is_none_or(|(room, _)| *room < bytes) {
            self.room = None;
            self.room = meter.take(bytes * LEASES as u64).map(|shares| (bytes, shares));
        }
        self.room.is_some()
    }
}

/// An event that has waited, and the answer to the request for its picture.
pub(super) struct Came {
    told: Told,
    answer: Result<Beside, Option<PictureAnswer>>,
}

impl Came {
    /// Returns the event with its picture. Fails if the application has lost its right meanwhile.
    pub(super) fn checked(self, feed: &mut Feed) -> Result<(Told, Beside), ApiError> {
        if let Some(lost) = feed.lost() {
            return Err(lost);
        }
        let beside = match (self.answer, &self.told.event) {
            (Ok(beside), _) => beside,
            (Err(answer), Event::Frame(frame)) => feed.beside(frame, answer),
            (Err(_), _) => Beside::Nothing,
        };
        Ok((self.told, beside))
    }
}

/// What comes beside an event, or the request for it.
enum Answer {
    Known(Beside),
    Asked(crate::pictures::Asked),
}

/// A value that can be waited for.
trait Awaited {
    type Found;
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Self::Found>;
}

impl Awaited for Answer {
    type Found = Result<Beside, Option<PictureAnswer>>;

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Self::Found> {
        match self {
            Self::Known(beside) => Poll::Ready(Ok(beside.clone())),
            Self::Asked(asked) => {
                let asked: Pin<&mut _> = asked.as_mut();
                asked.poll(context).map(|answer| Err(answer.ok().and_then(Result::ok)))
            }
        }
    }
}

/// Waiting events: those of each camera in order, and the last event of all.
struct Waiting<T, A> {
    cameras: HashMap<String, VecDeque<(T, A)>>,
    /// The last event belongs to no camera, and follows all others.
    last: Option<(T, A)>,
}

impl<T, A> Default for Waiting<T, A> {
    fn default() -> Self {
        Self { cameras: HashMap::new(), last: None }
    }
}

impl<T, A: Awaited> Waiting<T, A> {
    fn is_empty(&self) -> bool {
        self.cameras.is_empty() && self.last.is_none()
    }

    fn is_full(&self) -> bool {
        self.last.is_some() || self.cameras.values().any(|waiting| waiting.len() >= WAITING_MAX)
    }

    /// Whether an event must wait behind others of its camera. An event without a camera waits only if it is the last.
    fn holds_back(&self, camera: Option<&str>, is_last: bool) -> bool {
        match camera {
            Some(camera) => self.cameras.contains_key(camera),
            None => is_last && !self.is_empty(),
        }
    }

    fn push(&mut self, camera: Option<String>, event: T, answer: A) {
        match camera {
            Some(camera) => self.cameras.entry(camera).or_default().push_back((event, answer)),
            None => self.last = Some((event, answer)),
        }
    }

    /// The next event whose answer is ready.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<(T, A::Found)> {
        let first = self.cameras.iter_mut().find_map(|(camera, waiting)| {
            let (_, answer) = waiting.front_mut()?;
            match answer.poll(context) {
                Poll::Ready(found) => Some((camera.clone(), found)),
                Poll::Pending => None,
            }
        });
        if let Some((camera, found)) = first
            && let Some(waiting) = self.cameras.get_mut(&camera)
            && let Some((event, _)) = waiting.pop_front()
        {
            if waiting.is_empty() {
                self.cameras.remove(&camera);
            }
            return Poll::Ready((event, found));
        }
        if self.cameras.is_empty()
            && let Some((event, mut answer)) = self.last.take()
        {
            match answer.poll(context) {
                Poll::Ready(found) => return Poll::Ready((event, found)),
                Poll::Pending => self.last = Some((event, answer)),
            }
        }
        Poll::Pending
    }
}

/// The camera of an event.
fn camera_of(event: &Event) -> Option<&str> {
    match event {
        Event::Frame(frame) => Some(&frame.camera),
        Event::ContractChange(change) => Some(&change.camera),
        Event::CameraChange(change) => Some(&change.camera),
        Event::SourceChange(change) => Some(&change.camera),
        Event::Started(_)
        | Event::Waiting(_)
        | Event::Ended(_)
        | Event::GroupJoined(_)
        | Event::GroupHeld(_) => None,
    }
}

/// The largest possible size of the picture of a frame. `None` for stills.
fn bytes_of(frame: &pb::Frame) -> Option<usize> {
    let encoding = u8::try_from(frame.encoding).ok().and_then(Encoding::from_code)?;
    picture_bytes_max(encoding, (frame.width, frame.height))
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use proptest::prelude::*;

    use super::*;

    /// The answer is ready, or not yet, or never comes.
    #[derive(Clone, Copy)]
    enum Of {
        There,
        After(u32),
        Never,
    }

    impl Awaited for Of {
        type Found = ();

        fn poll(&mut self, _: &mut Context<'_>) -> Poll<()> {
            match self {
                Self::There | Self::After(0) => return Poll::Ready(()),
                Self::After(polls) => *polls -= 1,
                Self::Never => {}
            }
            Poll::Pending
        }
    }

    fn poll(waiting: &mut Waiting<u32, Of>) -> Option<u32> {
        match waiting.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready((event, ())) => Some(event),
            Poll::Pending => None,
        }
    }

    /// Of eight cameras, the decoder of one hangs: only its own events and the end of the stream wait.
    #[test]
    fn a_decoder_that_hangs_holds_up_its_own_camera() {
        let mut waiting = Waiting::default();
        waiting.push(Some("hangs".into()), 0, Of::Never);
        assert!(waiting.holds_back(Some("hangs"), false) && waiting.holds_back(None, true));
        assert!(!waiting.holds_back(Some("another"), false) && !waiting.holds_back(None, false));
        for round in 0..100 {
            let mut came = Vec::new();
            for camera in 1..8 {
                waiting.push(Some(camera.to_string()), 10 * round + camera, Of::After(camera % 3));
            }
            for _ in 0..20 {
                came.extend(poll(&mut waiting));
            }
            came.sort_unstable();
            assert_eq!(came, Vec::from_iter((1..8).map(|camera| 10 * round + camera)));
        }
        waiting.push(None, 99, Of::There);
        assert_eq!(poll(&mut waiting), None);
        for event in 1..WAITING_MAX as u32 {
            waiting.push(Some("hangs".into()), event, Of::There);
        }
        assert!(waiting.is_full());
        waiting.cameras.get_mut("hangs").unwrap()[0].1 = Of::There;
        let came: Vec<u32> = std::iter::from_fn(|| poll(&mut waiting)).collect();
        assert_eq!(came, Vec::from_iter((0..WAITING_MAX as u32).chain([99])));
        assert!(waiting.is_empty() && !waiting.is_full());
    }

    proptest! {
        /// In every order of arrival, each camera's events come completely and in order, and the last event comes last.
        #[test]
        fn events_of_a_camera_keep_their_order(events in proptest::collection::vec((0u8..3, 0u32..6), 0..60)) {
            let mut waiting = Waiting::default();
            let mut sent: HashMap<u8, Vec<u32>> = HashMap::new();
            let mut came: HashMap<u8, Vec<u32>> = HashMap::new();
            let mut of = Vec::new();
            for (number, (camera, after)) in events.into_iter().enumerate() {
                of.push(camera);
                sent.entry(camera).or_default().push(number as u32);
                waiting.push(Some(camera.to_string()), number as u32, Of::After(after));
                if let Some(event) = poll(&mut waiting) {
                    came.entry(of[event as usize]).or_default().push(event);
                }
            }
            waiting.push(None, u32::MAX, Of::There);
            while !waiting.is_empty() {
                match poll(&mut waiting) {
                    Some(u32::MAX) => prop_assert!(waiting.is_empty()),
                    Some(event) => came.entry(of[event as usize]).or_default().push(event),
                    None => {}
                }
            }
            prop_assert_eq!(came, sent);
        }
    }
}
