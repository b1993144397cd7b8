//! A participant of DDS that shares no code with the bridge: RustDDS. It takes and gives samples as `dds_peer.cpp` does, but finds others by
//! multicast, and on one host over loopback.
//!
//! ```text
//! mez-dds-rust-peer write|read DOMAIN ADDRESS PEER TOPIC TYPE TYPEHASH reliable|best_effort
//! ```
//!
//! `ADDRESS` is its own. `PEER` and `TYPEHASH` are ignored: RustDDS asks nobody by unicast, and tells no user data. Samples come on standard
//! input and go to standard output, each as its length (32 bits, little-endian) and its bytes. A sample is sent when somebody reads the topic.
//! The last ten are kept for readers that come later. A writer says `matched` and `unmatched` on standard error.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::process::exit;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use rustdds::no_key::{
    DataReader, DataWriter, Decode, DefaultDecoder, DeserializerAdapter, SerializerAdapter,
};
use rustdds::policy::{Durability, History, Reliability};
use rustdds::{
    DataWriterStatus, DomainParticipantBuilder, QosPolicies, QosPolicyBuilder, RepresentationIdentifier,
    StatusEvented, TopicKind,
};

/// The bytes before a sample's content: little-endian CDR, without options.
const HEAD: [u8; 4] = [0, 1, 0, 0];
const SAMPLE_BYTES_MAX: u32 = 16 << 20;
/// How often it looks for samples and matches.
const PAUSE: Duration = Duration::from_millis(2);

/// Takes and gives samples encoded.
#[derive(Clone)]
struct Encoded;

impl SerializerAdapter<Bytes> for Encoded {
    type Error = Infallible;

    fn output_encoding() -> RepresentationIdentifier {
        RepresentationIdentifier::CDR_LE
    }

    fn to_bytes(sample: &Bytes) -> Result<Bytes, Infallible> {
        assert!(sample.len() >= HEAD.len(), "a sample begins with how it is encoded");
        Ok(sample.slice(HEAD.len()..))
    }
}

impl DeserializerAdapter<Bytes> for Encoded {
    type Error = Infallible;
    type Decoded = Bytes;

    fn supported_encodings() -> &'static [RepresentationIdentifier] {
        &[RepresentationIdentifier::CDR_LE]
    }

    fn transform_decoded(sample: Bytes) -> Bytes {
        sample
    }
}

impl DefaultDecoder<Bytes> for Encoded {
    type Decoder = Self;
    const DECODER: Self = Self;
}

impl Decode<'_, Bytes> for Encoded {
    type Error = Infallible;

    fn decode_bytes(self, content: &[u8], _: RepresentationIdentifier) -> Result<Bytes, Infallible> {
        Ok([&HEAD, content].concat().into())
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [does, domain, address, _, topic, kind, _, reliability] = words.as_slice() else { exit(2) };
    let own: IpAddr = address.parse().expect("ADDRESS is an IP address");
    let participant = DomainParticipantBuilder::new(domain.parse().expect("DOMAIN is a number"))
        .with_only_networks([own])
        .build()
        .expect("the domain can be entered");
    let qos = qos(reliability == "reliable");
    let topic = participant
        .create_topic(topic.clone(), kind.clone(), &qos, TopicKind::NoKey)
        .expect("the topic can be made");
    let input = samples();
    if does == "write" {
        let publisher = participant.create_publisher(&qos).expect("a publisher");
        let writer = publisher.create_datawriter_no_key(&topic, None).expect("a writer");
        write(&writer, &input);
    } else {
        let subscriber = participant.create_subscriber(&qos).expect("a subscriber");
        let reader = subscriber.create_datareader_no_key(&topic, None).expect("a reader");
        read(reader, &input);
    }
}

fn qos(is_reliable: bool) -> QosPolicies {
    let max_blocking_time = rustdds::Duration::from_millis(100);
    QosPolicyBuilder::new()
        .reliability(match is_reliable {
            true => Reliability::Reliable { max_blocking_time },
            false => Reliability::BestEffort,
        })
        .durability(Durability::TransientLocal)
        .history(History::KeepLast { depth: 10 })
        .build()
}

/// The samples on standard input. The channel closes when the input ends.
fn samples() -> Receiver<Bytes> {
    let (send, samples) = sync_channel(10);
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        let mut size = [0; 4];
        while input.read_exact(&mut size).is_ok() && u32::from_le_bytes(size) <= SAMPLE_BYTES_MAX {
            let mut sample = vec![0; u32::from_le_bytes(size) as usize];
            if input.read_exact(&mut sample).is_err() || send.send(sample.into()).is_err() {
                break;
            }
        }
    });
    samples
}

fn write(writer: &DataWriter<Bytes, Encoded>, samples: &Receiver<Bytes>) {
    let mut matched = 0;
    let mut waits = None;
    loop {
        while let Some(status) = writer.try_recv_status() {
            if let DataWriterStatus::PublicationMatched { current, .. } = status {
                eprintln!("{}", if current.count() > matched { "matched" } else { "unmatched" });
                matched = current.count();
            }
        }
        if waits.is_none() {
            waits = match samples.try_recv() {
                Ok(sample) => Some(sample),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => return,
            };
        }
        match waits.take_if(|_| matched > 0) {
            Some(sample) => writer.write(sample, None).expect("a sample can be written"),
            None => thread::sleep(PAUSE),
        }
    }
}

/// Until whoever started it closes standard input.
fn read(mut reader: DataReader<Bytes, Encoded>, input: &Receiver<Bytes>) {
    let mut output = io::stdout().lock();
    while input.try_recv() != Err(TryRecvError::Disconnected) {
        while let Ok(Some(sample)) = reader.take_next_sample() {
            let sample = sample.into_value();
            let written = output
                .write_all(&(sample.len() as u32).to_le_bytes())
                .and_then(|()| output.write_all(&sample))
                .and_then(|()| output.flush());
            written.expect("whoever started it reads its output");
        }
        thread::sleep(PAUSE);
    }
}
