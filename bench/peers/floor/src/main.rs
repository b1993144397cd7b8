//! The floor: publisher → Unix socket → relay → TLS over TCP → relay → Unix socket → subscriber, whole frames, one copy a hop,
//! no log, no protocol but a length. Any time beyond this is the cost of a broker.
//!
//! `keys` makes the certificates that every peer uses, so that all have the same cost of ciphers.

use std::error::Error;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::net::sockopt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

#[path = "../../../../crates/emulator/src/pace.rs"]
mod pace;
#[path = "../../../measure/src/stamp.rs"]
mod stamp;

type Failure = Box<dyn Error + Send + Sync>;

const USAGE: &str = "write one of:
  keys FOLDER
  edge LISTEN_ADDRESS SOCKET KEYS
  camera SOCKET EDGE_ADDRESS KEYS
  publish SOCKET
  subscribe SOCKET";
const FRAME_BYTES_MAX: usize = 32 << 20;
const RECEIPTS_MAX: usize = 64;
/// The number of buffers that the subscriber uses in turn, so that the kernel need not provide new memory.
const BUFFERS: usize = 4;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["keys", folder] => make_keys(Path::new(folder)),
        ["edge", listen, socket, keys] => edge(listen, socket, Path::new(keys)),
        ["camera", socket, edge, keys] => camera(socket, edge, Path::new(keys)),
        ["publish", socket] => publish(socket),
        ["subscribe", socket] => subscribe(socket),
        _ => Err(USAGE.into()),
    }
}

/// Reads one frame into `frame`; false at the end of the stream.
fn read_frame(stream: &mut impl Read, frame: &mut Vec<u8>) -> io::Result<bool> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(error),
    }
    let bytes = u32::from_le_bytes(length) as usize;
    if bytes > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame above the limit"));
    }
    frame.resize(bytes, 0);
    stream.read_exact(frame)?;
    Ok(true)
}

fn write_frame(stream: &mut impl Write, frame: &[u8]) -> io::Result<()> {
    stream.write_all(&(frame.len() as u32).to_le_bytes())?;
    stream.write_all(frame)?;
    stream.flush()
}

fn publish(socket: &str) -> Result<(), Failure> {
    let mut stream = UnixStream::connect(socket)?;
    stamp::publish(|frame| write_frame(&mut stream, &frame).map_err(|error| error.to_string()))?;
    Ok(())
}

fn subscribe(socket: &str) -> Result<(), Failure> {
    let mut stream = UnixStream::connect(socket)?;
    let (sender, receipts) = sync_channel(RECEIPTS_MAX);
    let (back, buffers) = sync_channel(BUFFERS);
    for _ in 0..BUFFERS {
        back.send(Vec::new())?;
    }
    thread::spawn(move || {
        while let Ok(mut buffer) = buffers.recv() {
            match read_frame(&mut stream, &mut buffer) {
                Ok(true) => {}
                ended => return eprintln!("floor: the connection to the edge ended: {ended:?}"),
            }
            let received_ns = pace::now_ns();
            let payload = Lent { buffer, back: back.clone() };
            if sender.send(stamp::Receipt { subscription: 0, received_ns, payload }).is_err() {
                return;
            }
        }
    });
    let subscribe = |count| match count {
        1 => Ok(()),
        _ => Err("the floor has one subscription".into()),
    };
    stamp::subscribe(&receipts, subscribe)?;
    Ok(())
}

/// A buffer that is returned for reuse once its content was checked.
struct Lent {
    buffer: Vec<u8>,
    back: SyncSender<Vec<u8>>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // An error means that the receiver is gone: the program is about to end.
        let _ = self.back.send(std::mem::take(&mut self.buffer));
    }
}

fn camera(socket: &str, edge: &str, keys: &Path) -> Result<(), Failure> {
    let (certificates, key, roots) = load_keys(keys, "client")?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates, key)?;
    let tcp = TcpStream::connect(edge)?;
    tune(&tcp)?;
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into()?)?;
    let mut link = StreamOwned::new(connection, tcp);
    let (mut publisher, mut frame) = {
        let listener = UnixListener::bind(socket)?;
        println!("ready {socket}");
        (listener.accept()?.0, Vec::new())
    };
    while read_frame(&mut publisher, &mut frame)? {
        write_frame(&mut link, &frame)?;
    }
    Ok(())
}

fn edge(listen: &str, socket: &str, keys: &Path) -> Result<(), Failure> {
    let (certificates, key, roots) = load_keys(keys, "server")?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build()?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates, key)?;
    let listener = TcpListener::bind(listen)?;
    let subscribers = Arc::new(Mutex::new(Vec::<UnixStream>::new()));
    let applications = UnixListener::bind(socket)?;
    println!("ready {}", listener.local_addr()?);
    let entered = Arc::clone(&subscribers);
    thread::spawn(move || {
        for stream in applications.incoming().flatten() {
            entered.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        }
    });
    let (tcp, _) = listener.accept()?;
    tune(&tcp)?;
    let mut link = StreamOwned::new(ServerConnection::new(Arc::new(config))?, tcp);
    let mut frame = Vec::new();
    while read_frame(&mut link, &mut frame)? {
        let mut subscribers = subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        subscribers.retain_mut(|subscriber| write_frame(subscriber, &frame).is_ok());
    }
    Ok(())
}

/// Sets the options of Mez's link: no delay to collect more bytes, and CUBIC if the kernel has it.
fn tune(tcp: &TcpStream) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    if let Err(error) = sockopt::set_tcp_congestion(tcp, "cubic") {
        eprintln!("floor: CUBIC is not available ({error}); using the system's default");
    }
    Ok(())
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

type Keys = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, RootCertStore);

fn load_keys(folder: &Path, name: &str) -> Result<Keys, Failure> {
    let certificates =
        CertificateDer::pem_file_iter(folder.join(format!("{name}.pem")))?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(folder.join(format!("{name}.key")))?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("authority.pem"))?)?;
    Ok((certificates, key, roots))
}

/// An authority, a server called `localhost`, and a client, of the kind that `mez keys` makes (ECDSA P-256).
fn make_keys(folder: &Path) -> Result<(), Failure> {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
    fs::create_dir_all(folder)?;
    let authority_key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    fs::write(folder.join("authority.pem"), params.self_signed(&authority_key)?.pem())?;
    let issuer = Issuer::new(params, authority_key);
    for (name, usage) in
        [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
    {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()])?;
        params.extended_key_usages = vec![usage];
        fs::write(folder.join(format!("{name}.pem")), params.signed_by(&key, &issuer)?.pem())?;
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem())?;
    }
    Ok(())
}
