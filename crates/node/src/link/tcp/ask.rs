//! Asks an edge a question over TCP, before any greeting.

use std::io;

use mez_core::wire::{Message, MessageBuffer, RECORD_BYTES_MAX, RecordKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{ReadRecordError, put_records, read_head};

/// Sends a message, and waits for a message that `answer` accepts. Other messages are ignored.
pub(in crate::link) async fn ask<T>(
    stream: &mut TlsStream<TcpStream>,
    question: &Message,
    answer: impl Fn(Message) -> Option<T>,
) -> io::Result<T> {
    let (mut bytes, mut out) = (Vec::with_capacity(64), Vec::with_capacity(64));
    question.encode(&mut bytes);
    put_records(&mut out, RecordKind::Control, 0, &bytes);
    stream.write_all(&out).await?;
    stream.flush().await?;
    let mut messages = MessageBuffer::default();
    let mut content = vec![0; RECORD_BYTES_MAX];
    loop {
        let head = read_head(stream).await.map_err(|error| match error {
            ReadRecordError::Read(error) => error,
            error => io::Error::other(error.to_string()),
        })?;
        let content = &mut content[..head.bytes.into()];
        stream.read_exact(content).await?;
        if head.kind != RecordKind::Control {
            return Err(io::Error::other("an edge sends nothing but messages and stops"));
        }
        messages.push(content);
        while let Some(message) = messages.next().map_err(|error| io::Error::other(error.to_string()))? {
            if let Some(answered) = answer(message) {
                return Ok(answered);
            }
        }
    }
}
