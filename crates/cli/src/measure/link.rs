//! A slow link in user space: passes UDP datagrams on at a rate, through a bounded queue, and counts them.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use clap::Args;
use rustix::net::sockopt;

use super::stamp::{now_ns, sleep_until, wake_on_time};
use crate::failure::Failure;

/// What an IPv4 and a UDP header take on the link.
const HEADER_BYTES: u64 = 28;
/// The largest datagram.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;
/// What lies in the kernel has not reached the link yet: a burst of a whole frame must fit.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Pass datagrams on at a rate
#[derive(Debug, Args)]
pub(crate) struct LinkArgs {
    /// Where datagrams go: the edge's link port
    #[arg(long, value_name = "ADDRESS:PORT")]
    to: SocketAddr,
    /// The rate of each direction
    #[arg(long, value_name = "N")]
    bits_per_second: u64,
    /// What may wait in each direction; beyond that datagrams are dropped
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    queue_bytes_max: u64,
}

/// One direction.
struct Direction {
    queue: Mutex<Queue>,
    filled: Condvar,
    bits_per_second: u64,
    queue_bytes_max: u64,
}

#[derive(Default)]
struct Queue {
    datagrams: VecDeque<(Arc<UdpSocket>, SocketAddr, Vec<u8>)>,
    bytes: u64,
    passed_bytes: u64,
    passed: u64,
    dropped: u64,
}

impl Direction {
    fn new(args: &LinkArgs) -> Arc<Self> {
        Arc::new(Self {
            queue: Mutex::default(),
            filled: Condvar::new(),
            bits_per_second: args.bits_per_second,
            queue_bytes_max: args.queue_bytes_max,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Every statement leaves it whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, socket: &Arc<UdpSocket>, to: SocketAddr, datagram: &[u8]) {
        let bytes = datagram.len() as u64 + HEADER_BYTES;
        let mut queue = self.lock();
        if queue.bytes + bytes > self.queue_bytes_max {
            queue.dropped += 1;
            return;
        }
        queue.bytes += bytes;
        queue.datagrams.push_back((Arc::clone(socket), to, datagram.to_vec()));
        self.filled.notify_one();
    }

    /// Sends what is in the queue, each datagram when the one before has gone through the link.
    fn run(&self) {
        let mut free_ns = 0;
        loop {
            let (socket, to, datagram) = {
                let mut queue = self.lock();
                loop {
                    if let Some(first) = queue.datagrams.pop_front() {
                        break first;
                    }
                    queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
            };
            let bytes = datagram.len() as u64 + HEADER_BYTES;
            // A late wake-up is made up for, because the link's time goes on from where it was.
            free_ns = now_ns().max(free_ns) + bytes * 8 * 1_000_000_000 / self.bits_per_second;
            sleep_until(free_ns);
            // A datagram that the kernel does not take is lost, as on any link.
            let _ = socket.send_to(&datagram, to);
            let mut queue = self.lock();
            queue.bytes -= bytes;
            queue.passed_bytes += bytes;
            queue.passed += 1;
        }
    }

    fn json(&self) -> String {
        let Queue { passed_bytes, passed, dropped, .. } = *self.lock();
        format!(r#"{{"bytes":{passed_bytes},"datagrams":{passed},"dropped":{dropped}}}"#)
    }
}

/// Prints `ready ADDRESS`; then answers every line of the standard input with what has passed so far, and ends with it.
pub(crate) fn run(args: LinkArgs) -> Result<(), Failure> {
    // The threads that are made from here on wake on time.
    wake_on_time();
    let front = Arc::new(socket()?);
    let (up, down) = (Direction::new(&args), Direction::new(&args));
    for direction in [&up, &down] {
        let direction = Arc::clone(direction);
        thread::spawn(move || direction.run());
    }
    println!("ready {}", front.local_addr()?);
    {
        let (up, down) = (Arc::clone(&up), Arc::clone(&down));
        thread::spawn(move || {
            if let Err(error) = receive(&front, args.to, &up, &down) {
                eprintln!("mez: the link failed: {error}");
            }
        });
    }
    for line in io::stdin().lock().lines() {
        line?;
        println!(r#"{{"up":{},"down":{}}}"#, up.json(), down.json());
    }
    Ok(())
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

/// Takes datagrams of any number of clients, each of which gets a socket of its own towards `to`.
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
                    // An error is an answer that could not be delivered; the next one may be.
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
