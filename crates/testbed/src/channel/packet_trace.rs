//! Reads recorded links. A recording has one line for each packet of 1500 bytes that the link could have carried: the millisecond of this packet.
//! Several lines may name the same millisecond. This is the format of the Mahimahi tools (R. Netravali et al., USENIX ATC 2015), in which many
//! recordings of cellular and Wi-Fi links are published.

use super::capacity::Capacity;

/// Bytes of the packet of one line.
const PACKET_BYTES: f64 = 1_500.0;
/// The longest recording that is read, in milliseconds: a day. It bounds the memory for a wrong file.
const TRACE_MS_MAX: u64 = 86_400_000;

/// Why a recording could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line is not a whole number of milliseconds.
    #[error("line {line} is {text:?}; write the time of one packet there, as a whole number of milliseconds")]
    NotANumber {
        /// The line number, from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// A line has an earlier time than the one before.
    #[error("line {line} is earlier than the line before; sort the packets by time")]
    NotInOrder {
        /// The line number, from 1.
        line: usize,
    },
    /// The recording is too long.
    #[error(
        "line {line} is more than a day after the beginning; write times in milliseconds, and cut longer traces"
    )]
    TooLong {
        /// The line number, from 1.
        line: usize,
    },
    /// The recording has no packet after its first millisecond.
    #[error(
        "the trace has no packet after its first millisecond, so its rate is unknown; use a longer trace"
    )]
    Empty,
}

/// Reads a recording, and repeats it until `ms` milliseconds are filled.
///
/// # Errors
/// See [`TraceError`].
pub fn read(text: &str, ms: usize) -> Result<Capacity, TraceError> {
    let mut packets: Vec<u64> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let (line, text) = (index + 1, line.trim());
        if text.is_empty() {
            continue;
        }
        let at = text
            .parse()
            .map_err(|_| TraceError::NotANumber { line, text: text.chars().take(40).collect() })?;
        if packets.last().is_some_and(|before| at < *before) {
            return Err(TraceError::NotInOrder { line });
        }
        if at > TRACE_MS_MAX {
            return Err(TraceError::TooLong { line });
        }
        packets.push(at);
    }
    // The time of the last packet is the length of the recording, as in Mahimahi.
    let length = match packets.last() {
        Some(last) if *last > 0 => *last as usize,
        _ => return Err(TraceError::Empty),
    };
    let mut bytes = vec![0.0; length];
    for at in packets {
        bytes[(at as usize).min(length - 1)] += PACKET_BYTES;
    }
    Ok(Capacity::new((0..ms).map(|ms| bytes[ms % length])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_where_the_recording_has_them_and_it_repeats() {
        let capacity = read("0\n0\n\n2\n4\n", 9).expect("a sound recording");
        let bytes: Vec<f64> = (0..9).map(|ms| capacity.at_ms(ms)).collect();
        assert_eq!(bytes, [3000.0, 0.0, 1500.0, 1500.0, 3000.0, 0.0, 1500.0, 1500.0, 3000.0]);
    }

    #[test]
    fn what_is_no_recording_is_refused_with_its_line() {
        let number = TraceError::NotANumber { line: 2, text: "x".into() };
        assert_eq!(read("1\nx\n", 5), Err(number));
        assert_eq!(read("5\n4\n", 5), Err(TraceError::NotInOrder { line: 2 }));
        assert_eq!(read("1\n99999999\n", 5), Err(TraceError::TooLong { line: 2 }));
        assert_eq!(read("0\n0\n", 5), Err(TraceError::Empty));
        assert_eq!(read("", 5), Err(TraceError::Empty));
    }
}
