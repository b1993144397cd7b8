//! Enrolment: a device gets a certificate with a one-time token.
//!
//! The device makes its own private key and never sends it. It connects with TLS to a separate port, where only the server
//! has a certificate, and sends a signing request and the token's secret. The server looks up the token, signs the request,
//! marks the token as used, and answers. The token contains the fingerprint of the authority, which authenticates the
//! server to the device. The secret authenticates the device to the server. So an attacker between them cannot take part.
//!
//! An exchange is one request and one answer. Each is a length of four bytes (big-endian),
//! followed by JSON of that many bytes. The version is in the TLS protocol name, `mez-enrol/1`.

mod blocking;
mod client;
mod server;

pub use blocking::{RunningEnrolment, ServeError, enrol_blocking};
pub use client::{EnrolError, Enrolled, enrol};
pub use server::EnrolmentServer;

use std::io;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The largest request or answer that is read: 16 KiB. It limits the memory that a stranger can use.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024;

/// The request of a device.
#[derive(Serialize, Deserialize)]
struct Request {
    /// The secret of its token, base64url.
    secret: String,
    /// The identity that the device expects. If it differs from the token's identity, the token was changed, and the request is refused.
    identity: String,
    /// PKCS #10 in DER, base64url.
    signing_request: String,
    /// The name of the device's host. Used only for an edge, whose certificate contains it.
    host: String,
}

/// The server's answer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    /// The device's certificate, and the certificates between it and the authority: DER, base64url.
    Issued { chain: Vec<String> },
    /// No certificate, with the reason.
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
    /// The token is for another identity.
    WrongIdentity,
    /// The request is invalid, or asks for something that is not allowed.
    BadRequest,
    /// The server failed; its log says why.
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
