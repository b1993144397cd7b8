//! The client's side of the local protocol.

use std::io;
use std::path::Path;

use bytes::Bytes;
use prost::Message;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;

use super::packet::{Kind, PacketError, PacketReader, PacketWriter};
use super::{DescriptorReader, MAGIC};

/// A connection to a broker on this host.
#[derive(Debug)]
pub struct LocalConnection {
    /// Receives packets from the broker.
    pub reader: PacketReader<DescriptorReader>,
    /// Sends packets to the broker.
    pub writer: PacketWriter<OwnedWriteHalf>,
}

impl LocalConnection {
    /// Connects to the broker that listens on `path`.
    pub async fn open(path: &Path) -> io::Result<Self> {
        let (read, write) = UnixStream::connect(path).await?.into_split();
        let mut writer = PacketWriter::new(write);
        writer.write_raw(MAGIC).await?;
        Ok(Self { reader: PacketReader::from_broker(read), writer })
    }

    /// Sends one request and waits for its answer. After an error other than [`PacketError::Refused`],
    /// or if this call was cancelled, the connection cannot be used any more.
    pub async fn call<M: Message + Default>(
        &mut self,
        kind: Kind,
        request: &impl Message,
        payload: Bytes,
    ) -> Result<M, PacketError> {
        self.ask(kind, request, payload).await?;
        let answer = self.reader.read().await?.ok_or(PacketError::Cut)?;
        answer.decode(kind)
    }

    /// Sends the first packet of a call or a stream. A broker that refuses a connection sends an error and closes it, perhaps
    /// before this packet is written. The error then waits to be read, and is more helpful than the failure to write.
    pub(crate) async fn ask(
        &mut self,
        kind: Kind,
        request: &impl Message,
        payload: Bytes,
    ) -> Result<(), PacketError> {
        let Err(error) = self.writer.write(kind, request, payload).await else { return Ok(()) };
        match self.reader.read().await {
            Ok(Some(packet)) if packet.kind == Kind::Error => packet.decode(kind),
            _ => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::UnixListener;
    use tonic::Code;

    use super::*;
    use crate::api::{ApiError, pb};

    #[tokio::test]
    async fn a_refusal_is_heard_after_the_broker_has_closed_the_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("broker.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let mut connection = LocalConnection::open(&path).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; MAGIC.len()]).await.unwrap();
        let refusal = ApiError::new(Code::ResourceExhausted, "TOO_MANY_CONNECTIONS", "there is no place");
        PacketWriter::new(stream).write_error(refusal).await.unwrap();
        let request = pb::GetCameraInfoRequest::default();
        let answer =
            connection.call::<pb::GetCameraInfoResponse>(Kind::GetCameraInfo, &request, Bytes::new()).await;
        let Err(PacketError::Refused(heard)) = answer else { panic!("{answer:?}") };
        assert_eq!(heard.reason, "TOO_MANY_CONNECTIONS");
        // Nothing more can be read, so the failure itself is reported.
        let answer =
            connection.call::<pb::GetCameraInfoResponse>(Kind::GetCameraInfo, &request, Bytes::new()).await;
        assert!(matches!(answer, Err(PacketError::Io(_))), "{answer:?}");
    }
}
