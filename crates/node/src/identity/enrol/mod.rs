//! Enrolment: a device with a one-time token gets its certificate.
//!
//! The device makes its key itself and never shows it. Over TLS on a port of its own, where only the server has a
//! certificate, it sends a signing request and the token's secret; the server looks the token up, signs, uses the
//! token up and answers. The device knows the server by the authority's fingerprint in the token, so nobody in
//! between can take part, and the server knows the device by the secret.
//!
//! One exchange is one request and one answer, each a length of four bytes (big-endian) and that many bytes of
//! JSON. The version is in the TLS protocol name, `mez-enrol/1`.

mod blocking;
mod client;
mod server;

pub use blocking::{RunningEnrolment, ServeError, enrol_blocking};
pub use client::{EnrolError, Enrolled, enrol};
pub use server::EnrolmentServer;

use std::io;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The largest request that a server reads, and the largest answer that a client reads. 16 KiB.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// What the device asks for.
#[derive(Serialize, Deserialize)]
struct Request {
    /// The secret of its token, base64url.
    secret: String,
    /// The identity that it believes to get. Anything else than the token's is refused, which can only mean that
    /// somebody changed the token.
    identity: String,
    /// PKCS #10 in DER, base64url.
    signing_request: String,
    /// The name of the device's host; counts only for an edge, whose certificate carries it.
    host: String,
}

/// What it gets.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// Its certificate, and what lies between it and the authority: DER, base64url.
    Issued { chain: Vec<String> },
    /// Nothing, and why.
    Refused { code: RefusalCode, message: String },
}

/// Why a device was not enrolled, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The secret belongs to no token.
    UnknownToken,
    /// The token has been used.
    UsedToken,
    /// The token has expired.
    ExpiredToken,
    /// The token is for somebody else.
    WrongIdentity,
    /// The request cannot be understood, or asks for what cannot be given.
    BadRequest,
    /// Something is wrong at the server; its log says what.
    Internal,
}

async fn write_message(stream: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> io::Result<()> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).ok().filter(|&length| length as usize <= MESSAGE_BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::other("the message is too long"))?;
    stream.write_all(&[&length.to_be_bytes(), body.as_slice()].concat()).await?;
    stream.flush().await
}

async fn read_message<T: for<'a> Deserialize<'a>>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let length = stream.read_u32().await? as usize;
    // Checked before anything is allocated.
    if length > MESSAGE_BYTES_MAX {
        let why = format!("a message of {length} bytes is announced, and {MESSAGE_BYTES_MAX} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(serde_json::from_slice(&body)?)
}

#[cfg(test)]
mod tests;
