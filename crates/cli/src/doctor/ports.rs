//! Checks whether the ports of this host's edge are free, or used by the edge itself.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;

use super::finding::{Check, Finding};
use super::subject::{Ports, Side, Subject};

pub(super) fn check(subject: &Subject) -> Vec<Finding> {
    if !subject.is(Side::Edge) {
        return Vec::new();
    }
    // If the edge runs, it uses the ports, which is fine.
    let runs = UnixStream::connect(&subject.socket).is_ok();
    let Ports { listen, grpc, enrol } = subject.ports;
    let issues = subject.keys.as_ref().is_ok_and(|keys| keys.holds_authority_key());
    let tcp = |address: SocketAddr| TcpListener::bind(address).map(drop);
    let wanted = [
        Some(("UDP", listen, "--listen", UdpSocket::bind(listen).map(drop))),
        Some(("TCP", listen, "--listen", tcp(listen))),
        grpc.map(|address| ("TCP", address, "--grpc", tcp(address))),
        enrol.filter(|_| issues).map(|address| ("TCP", address, "--enrol", tcp(address))),
    ];
    wanted
        .into_iter()
        .flatten()
        .map(|(protocol, address, option, bound)| judge(protocol, address, option, bound, runs))
        .collect()
}

fn judge(protocol: &str, address: SocketAddr, option: &str, bound: io::Result<()>, runs: bool) -> Finding {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, PermissionDenied};
    let error = match bound {
        Ok(()) => return Finding::ok(Check::Ports, format!("{protocol} {address} is free")),
        Err(error) => error,
    };
    let (found, remedy) = match error.kind() {
        AddrInUse if runs => {
            return Finding::ok(
                Check::Ports,
                format!("{protocol} {address} is in use, and an edge runs here"),
            );
        }
        AddrInUse => {
            let letter = if protocol == "UDP" { 'u' } else { 't' };
            let port = address.port();
            (
                format!("{protocol} {address} is in use by another program"),
                format!(
                    "is another broker running? Stop it (`ss -l{letter}np 'sport = :{port}'` names it), or choose another port with {option}"
                ),
            )
        }
        AddrNotAvailable => (
            format!("this host has no address {}", address.ip()),
            format!("choose one of this host's addresses with {option}: `ip address` lists them"),
        ),
        PermissionDenied => (
            format!("this user may not open {protocol} {address}"),
            format!("ports below 1024 need root; choose a higher one with {option}"),
        ),
        _ => (
            format!("{protocol} {address} cannot be opened: {error}"),
            format!("choose another address with {option}"),
        ),
    };
    Finding::fault(Check::Ports, found, remedy)
}
