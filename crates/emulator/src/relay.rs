//! Emulates a link in user space: passes UDP datagrams on at the rates of a timetable, through bounded queues, and counts them.
//!
//! The testbed's [`Link`](mez_testbed::link::Link) gets the time as an argument. This link sleeps until a datagram is due, on its own threads.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use mez_testbed::channel::timetable::Timetable;
use rustix::net::sockopt;
use serde_json::{Value, json};

use crate::pace::{now_ns, sleep_until};

/// The bytes of an IPv4 and a UDP header on the link.
const HEADER_BYTES: u64 = 28;
/// The largest datagram.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;
/// The bytes that an Ethernet frame holds after these headers. Larger datagrams are
/// dropped, as on most paths. Brokers try them, because loopback would carry them.
const PATH_BYTES_MAX: usize = 1500 - HEADER_BYTES as usize;
/// The receive buffer of a socket. Datagrams in it have not reached the link yet, so a burst of a whole frame must fit.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// How long a transmitter of a cut link sleeps before it checks the link again.
const CUT_LOOK_NS: u64 = 20_000_000;

/// The most datagrams in flight behind a transmitter: a tenth of a second at 400 Mbit/s. With more, the transmitter waits.
const ON_WAY_MAX: usize = 4096;

/// The properties of a link.
#[derive(Clone, Debug)]
pub struct RelaySpec {
    /// The rate of each direction.
    pub timetable: Timetable,
    /// The delay of each direction behind the transmitter, in nanoseconds.
    pub delay_ns: [u64; 2],
    /// How many bytes may wait in each direction. Beyond that, datagrams are dropped.
    pub queue_bytes_max: u64,
    /// One datagram in this many is lost. 0: none.
    pub lost_once_in: u64,
}

/// The clock of a timetable. It stands at 0 until it begins.
#[derive(Debug, Default)]
pub struct Conductor {
    began_ns: AtomicU64,
    is_open: AtomicBool,
}

impl Conductor {
    /// Starts the clock, unless it has started.
    pub fn begin(&self) {
        let _ = self.began_ns.compare_exchange(0, now_ns(), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Opens all links: from now on, they have no rate limit.
    pub fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// When `bits` that begin at `from_ns` have been transmitted, by the machine's clock. `None`: not within the timetable.
    fn end(&self, timetable: &Timetable, from_ns: u64, bits: u64) -> Option<u64> {
        if self.is_open.load(Ordering::Relaxed) {
            return Some(from_ns);
        }
        match self.began_ns.load(Ordering::Relaxed) {
            0 => Some(from_ns + bits * 1_000_000_000 / timetable.rate_at(0).max(1)),
            began => Some(timetable.end(from_ns.saturating_sub(began), bits)? + began),
        }
    }
}

/// A datagram, the socket that sends it, and its destination.
struct Parcel {
    socket: Arc<UdpSocket>,
    to: SocketAddr,
    datagram: Vec<u8>,
}

/// One direction: a queue, a transmitter, and the delay behind it.
struct Direction {
    conductor: Arc<Conductor>,
    spec: RelaySpec,
    delay_ns: u64,
    queue: Mutex<Queue>,
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    parcels: VecDeque<Parcel>,
    bytes: u64,
    counts: Counts,
}

/// Counts of what a direction has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    passed_bytes: u64,
    passed: u64,
    dropped: u64,
    lost: u64,
    /// The longest time by which the machine itself delayed a datagram, in nanoseconds.
    late_ns_max: u64,
}

impl Counts {
    fn json(&self) -> Value {
        json!({
            "bytes": self.passed_bytes,
            "datagrams": self.passed,
            "dropped": self.dropped,
            "lost": self.lost,
            "late_ms_max": self.late_ns_max as f64 / 1e6,
        })
    }
}

impl Direction {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Each statement leaves the queue consistent, so a poisoned lock is safe to use.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, socket: &Arc<UdpSocket>, to: SocketAddr, datagram: &[u8]) {
        if datagram.len() > PATH_BYTES_MAX {
            return;
        }
        let bytes = datagram.len() as u64 + HEADER_BYTES;
        let mut queue = self.lock();
        if queue.bytes + bytes > self.spec.queue_bytes_max {
            queue.counts.dropped += 1;
            return;
        }
        queue.bytes += bytes;
        queue.parcels.push_back(Parcel { socket: Arc::clone(socket), to, datagram: datagram.to_vec() });
        self.filled.notify_one();
    }

    /// Transmits the queue, one datagram after another.
    fn transmit(&self, on_way: &SyncSender<(u64, Parcel)>) {
        let mut free_ns = 0;
        loop {
            let parcel = {
                let mut queue = self.lock();
                loop {
                    if let Some(first) = queue.parcels.pop_front() {
                        break first;
                    }
                    queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
            };
            let bytes = parcel.datagram.len() as u64 + HEADER_BYTES;
            // A late wake-up causes no lasting delay, because the link's time continues from where it was.
            let from_ns = now_ns().max(free_ns);
            free_ns = loop {
                // A cut link may be opened from outside, so the transmitter does not sleep until the link is restored.
                let end_ns = self.conductor.end(&self.spec.timetable, from_ns, bytes * 8);
                let look_ns = now_ns() + CUT_LOOK_NS;
                match end_ns {
                    Some(end_ns) if end_ns <= look_ns => break end_ns,
                    _ => sleep_until(look_ns),
                }
            };
            sleep_until(free_ns);
            let is_lost = {
                let mut queue = self.lock();
                queue.bytes -= bytes;
                queue.counts.passed_bytes += bytes;
                queue.counts.passed += 1;
                let once_in = self.spec.lost_once_in;
                let is_lost = once_in > 0 && queue.counts.passed.is_multiple_of(once_in);
                queue.counts.lost += u64::from(is_lost);
                is_lost
            };
            if !is_lost && on_way.send((free_ns + self.delay_ns, parcel)).is_err() {
                return;
            }
        }
    }

    fn deliver(&self, on_way: &Receiver<(u64, Parcel)>) {
        while let Ok((due_ns, parcel)) = on_way.recv() {
            sleep_until(due_ns);
            let late_ns = now_ns() - due_ns;
            // A datagram that the kernel does not take is lost, as on any link.
            let _ = parcel.socket.send_to(&parcel.datagram, parcel.to);
            let mut queue = self.lock();
            queue.counts.late_ns_max = queue.counts.late_ns_max.max(late_ns);
        }
    }
}

/// A link to one address. It runs until the process ends.
pub struct Relay {
    address: SocketAddr,
    directions: [Arc<Direction>; 2],
}

impl Relay {
    /// Begins to pass datagrams on to `to`.
    pub fn start(spec: &RelaySpec, to: SocketAddr, conductor: &Arc<Conductor>) -> io::Result<Self> {
        let directions = spec.delay_ns.map(|delay_ns| {
            let direction = Arc::new(Direction {
                conductor: Arc::clone(conductor),
                spec: spec.clone(),
                delay_ns,
                queue: Mutex::default(),
                filled: Condvar::new(),
            });
            let (sender, receiver) = mpsc::sync_channel(ON_WAY_MAX);
            let (transmitter, way) = (Arc::clone(&direction), Arc::clone(&direction));
            thread::spawn(move || transmitter.transmit(&sender));
            thread::spawn(move || way.deliver(&receiver));
            direction
        });
        Self::with(directions, to)
    }

    /// Opens another address of the same link. Both addresses share the link's queues.
    pub fn beside(&self, to: SocketAddr) -> io::Result<Self> {
        Self::with(self.directions.clone(), to)
    }

    fn with(directions: [Arc<Direction>; 2], to: SocketAddr) -> io::Result<Self> {
        let front = Arc::new(socket()?);
        let address = front.local_addr()?;
        let [up, down] = directions.clone();
        thread::spawn(move || {
            if let Err(error) = receive(&front, to, &up, &down) {
                eprintln!("mez: the emulated link failed: {error}");
            }
        });
        Ok(Self { address, directions })
    }

    /// The address at which the relay takes datagrams.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The counts of the link, over all its addresses.
    pub fn json(&self) -> Value {
        let [up, down] = self.directions.each_ref().map(|direction| direction.lock().counts.json());
        json!({ "up": up, "down": down })
    }
}

fn socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    for set in [sockopt::set_socket_recv_buffer_size_force, sockopt::set_socket_recv_buffer_size] {
        if set(&socket, SOCKET_BUFFER_BYTES).is_ok() {
            break;
        }
    }
    Ok(socket)
}

/// Takes datagrams of any number of clients. Each client gets a socket of its own towards `to`.
fn receive(
    front: &Arc<UdpSocket>,
    to: SocketAddr,
    up: &Arc<Direction>,
    down: &Arc<Direction>,
) -> io::Result<()> {
    let mut clients: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let (bytes, client) = front.recv_from(&mut buffer)?;
        let onward = match clients.get(&client) {
            Some(onward) => Arc::clone(onward),
            None => {
                let onward = Arc::new(socket()?);
                clients.insert(client, Arc::clone(&onward));
                let (front, back, down) = (Arc::clone(front), Arc::clone(&onward), Arc::clone(down));
                thread::spawn(move || {
                    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
                    // An error means that one answer could not be delivered. Later answers may be.
                    loop {
                        if let Ok((bytes, _)) = back.recv_from(&mut buffer) {
                            down.put(&front, client, &buffer[..bytes]);
                        }
                    }
                });
                onward
            }
        };
        up.put(&onward, to, &buffer[..bytes]);
    }
}
