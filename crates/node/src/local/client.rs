//! A program's side of the local protocol.

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
    /// What the broker sends.
    pub reader: PacketReader<DescriptorReader>,
    /// What the broker is sent.
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

    /// One question, one answer. After an error other than [`PacketError::Refused`] the connection is of no more use, nor
    /// where this was cancelled.
    pub async fn call<M: Message + Default>(
        &mut self,
        kind: Kind,
        request: &impl Message,
        payload: Bytes,
    ) -> Result<M, PacketError> {
        self.writer.write(kind, request, payload).await?;
        let answer = self.reader.read().await?.ok_or(PacketError::Cut)?;
        answer.decode(kind)
    }
}
