//! Cyclone DDS at its best for one camera: its C library, called without Python, writes and reads
//! `sensor_msgs/msg/CompressedImage` as ROS 2 encodes it. A frame is copied once, into the library's sample.

use std::error::Error;
use std::sync::mpsc::sync_channel;

mod library;
#[path = "../../../../crates/emulator/src/pace.rs"]
mod pace;
#[path = "../../../measure/src/stamp.rs"]
mod stamp;

use library::{Domain, Plan};

type Failure = Box<dyn Error + Send + Sync>;

const USAGE: &str = "write: write|read LIBRARY DOMAIN CONFIG TOPIC TYPE SIZE,ALIGN,COUNT WORD,WORD,…
  CONFIG: of the library, as XML. SIZE, ALIGN, COUNT and words: the program by which it checks samples";
const RECEIPTS_MAX: usize = 4096;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [does, library, domain, config, topic, kind, shape, program] = words[..] else {
        return Err(USAGE.into());
    };
    let plan =
        Plan { topic, kind, shape: numbers(shape)?.try_into().map_err(|_| USAGE)?, words: numbers(program)? };
    let domain = Domain::enter(library, domain.parse()?, config)?;
    match does {
        "write" => write(&domain, &plan),
        "read" => read(domain, &plan),
        _ => Err(USAGE.into()),
    }
}

fn numbers(text: &str) -> Result<Vec<u32>, Failure> {
    text.split(',').map(|word| Ok(word.parse()?)).collect()
}

fn write(domain: &Domain, plan: &Plan<'_>) -> Result<(), Failure> {
    let writer = domain.writer(plan)?;
    Ok(stamp::publish(|frame| writer.write(&head(frame.len()), &frame, frame.len().wrapping_neg() % 4))?)
}

fn read(domain: Domain, plan: &Plan<'_>) -> Result<(), Failure> {
    let mut reader = Some(domain.reader(plan)?);
    let (sender, receipts) = sync_channel(RECEIPTS_MAX);
    let subscribe = |_count: usize| {
        let (Some(reader), sender) = (reader.take(), sender.clone()) else {
            return Err("this reader subscribes once".to_owned());
        };
        std::thread::spawn(move || {
            loop {
                let taken = reader.take(|sample| {
                    let received_ns = pace::now_ns();
                    let payload = payload(sample).to_vec();
                    let _ = sender.try_send(stamp::Receipt { subscription: 0, received_ns, payload });
                });
                if let Err(error) = taken {
                    eprintln!("{error}");
                    return;
                }
            }
        });
        Ok(())
    };
    Ok(stamp::subscribe(&receipts, subscribe)?)
}

/// The camera's name in the header of a message.
const FRAME_ID: &[u8] = b"bench/cam\0";
const FORMAT: &[u8] = b"jpeg\0";
const ENCODING_BYTES: usize = 4;

/// A message up to its image: the encoding, a time stamp, texts with their lengths, and the image's length.
fn head(payload_bytes: usize) -> Vec<u8> {
    let mut head = vec![0, 1, 0, (payload_bytes.wrapping_neg() % 4) as u8];
    // This time stamp is 0: the measured stamp is in the payload.
    head.extend_from_slice(&[0; 8]);
    for text in [FRAME_ID, FORMAT] {
        head.extend_from_slice(&(text.len() as u32).to_le_bytes());
        head.extend_from_slice(text);
        head.resize(head.len().next_multiple_of(4), 0);
    }
    head.extend_from_slice(&(payload_bytes as u32).to_le_bytes());
    head
}

/// The image in a message. If the message has other texts or is cut off, the result is no image that was sent.
fn payload(sample: &[u8]) -> &[u8] {
    let begin = head(0).len();
    let padding = usize::from(sample.get(ENCODING_BYTES - 1).copied().unwrap_or(0) & 3);
    sample.get(begin..sample.len().saturating_sub(padding)).unwrap_or(&[])
}
