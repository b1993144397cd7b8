//! Fuzzes the decoders of the link's bytes.

use mez_core::wire::{
    FRAME_HEADER_BYTES_MAX, FrameHeader, MESSAGE_BYTES_MAX, Message, MessageBuffer, WireError,
};

/// The input is a control stream. Its first byte gives the length of the pieces in which the rest arrives.
pub fn wire_message(bytes: &[u8]) {
    let Some((&cut, stream)) = bytes.split_first() else { return };
    let whole = read([stream]);
    assert_eq!(read(stream.chunks(usize::from(cut) + 1)), whole, "pieces changed what was read");

    // A peer's message must survive our own encoding. Compared as bytes, because a NaN does not equal itself.
    let mut encoded = Vec::new();
    for message in &whole.messages {
        let start = encoded.len();
        message.encode(&mut encoded);
        assert!(encoded.len() - start <= 4 + MESSAGE_BYTES_MAX);
    }
    let again = read([&*encoded]);
    assert_eq!(again.end, Ok(()), "our own encoding made no sense");
    let mut twice = Vec::new();
    again.messages.iter().for_each(|message| message.encode(&mut twice));
    assert_eq!(twice, encoded, "decoding and encoding again changed a message");

    // The decoder alone, without the length in front.
    let _ = Message::decode(stream);
}

struct Heard {
    messages: Vec<Message>,
    end: Result<(), WireError>,
}

impl PartialEq for Heard {
    fn eq(&self, other: &Self) -> bool {
        // Compared as text, in which NaN equals itself.
        self.end == other.end && format!("{:?}", self.messages) == format!("{:?}", other.messages)
    }
}

impl std::fmt::Debug for Heard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}, then {:?}", self.messages, self.end)
    }
}

fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Heard {
    let (mut buffer, mut heard) = (MessageBuffer::default(), Heard { messages: Vec::new(), end: Ok(()) });
    for piece in pieces {
        buffer.push(piece);
        loop {
            match buffer.next() {
                Ok(Some(message)) => heard.messages.push(message),
                Ok(None) => break,
                Err(error) => return Heard { end: Err(error), ..heard },
            }
        }
    }
    heard
}

/// The input is a frame's header, as at the beginning of a stream.
pub fn frame_header(bytes: &[u8]) {
    if let Some(prefix) = bytes.first_chunk::<2>()
        && let Ok(length) = FrameHeader::length(*prefix)
    {
        assert!((2..=FRAME_HEADER_BYTES_MAX).contains(&length));
        // Like the link: read exactly this many bytes, then decode them.
        if let Some(header) = bytes.get(..length) {
            let _ = FrameHeader::decode(header);
        }
    }
    let Ok(header) = FrameHeader::decode(bytes) else { return };
    let mut encoded = Vec::new();
    header.encode(&mut encoded);
    assert!(encoded.len() <= FRAME_HEADER_BYTES_MAX);
    assert_eq!(FrameHeader::length([encoded[0], encoded[1]]), Ok(encoded.len()));
    assert_eq!(FrameHeader::decode(&encoded), Ok(header));
}
