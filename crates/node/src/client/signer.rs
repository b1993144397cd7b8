//! Lets another edge of the site, which has access to the authority's key, renew certificates.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use prost::Message;

use super::address::Address;
use super::dial::Dialler;
use super::error::ClientError;
use crate::api::pb::{self, RenewalRefusal};
use crate::api::socket::Which;
use crate::identity::renew::{Signs, encode, refusal};
use crate::identity::{Credentials, Signer};

/// Forwards requests to another edge. Requests contain their own proof, so the other edge need not trust this one.
#[derive(Debug)]
struct Relay(Dialler);

/// The signer at an address: behind a Unix socket (`mez keys serve --signer`), or another edge. `credentials` are those of this edge.
pub fn signer_at(address: &Address, credentials: &Credentials) -> Result<Signer, ClientError> {
    match address.as_unix() {
        Some(path) => Ok(Signer::behind(path)),
        None => Ok(Signer::from(Relay(Dialler::new(address.clone(), Which::Edge, Some(credentials))?))),
    }
}

impl Signs for Relay {
    fn passes_on(&self) -> bool {
        true
    }

    fn sign(&self, request: Bytes) -> Pin<Box<dyn Future<Output = Bytes> + Send + '_>> {
        Box::pin(async move {
            let Ok(request) = pb::RenewCertificateRequest::decode(request) else {
                return encode(&refusal(
                    RenewalRefusal::BadRequest,
                    "the request for a certificate cannot be read",
                ));
            };
            match self.0.renew(request).await {
                Ok(Some(answer)) => encode(&answer),
                Ok(None) => encode(&crate::identity::renew::no_signer()),
                Err(error) => {
                    let message = format!("the edge with the authority's key does not answer: {error}");
                    encode(&refusal(RenewalRefusal::NoSigner, message))
                }
            }
        })
    }
}
