//! One camera: which of its profiles the source reads, and how this profile is asked for a key frame.

use ring::rand::{SecureRandom, SystemRandom};
use thiserror::Error;
use time::{Duration, OffsetDateTime};

use super::address::ServiceAddress;
use super::http::{HttpClient, HttpError};
use super::soap::{Media, Question, Reply, SoapError, Token, envelope};
use crate::source::spec::{SourceSpec, path_and_query};

/// Why a camera cannot be asked for a key frame.
#[derive(Debug, Error)]
pub(super) enum OnvifError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error(transparent)]
    Soap(#[from] SoapError),
    /// The answer contains no XML.
    #[error("its answer has the status {0}")]
    Status(http::StatusCode),
    #[error("it has no service for video")]
    NoMedia,
    #[error("none of its {0} profiles has the path of the source's address")]
    NoProfile(usize),
    #[error("its answer could not be parsed")]
    Unread,
    #[error("this host gives no random numbers")]
    NoRandom,
}

/// The profile that the source reads, and where to ask it.
#[derive(Clone, Debug)]
pub(super) struct Found {
    media: Media,
    service: ServiceAddress,
    profile: String,
}

impl std::fmt::Display for Found {
    /// The profile's name comes from the camera, so it is quoted.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of ONVIF, profile {:?}", self.media.name(), self.profile)
    }
}

/// A network camera.
pub(super) struct Device {
    address: ServiceAddress,
    /// Path and query of the source's own address.
    path: String,
    client: HttpClient,
    /// How far the camera's clock is ahead of ours.
    ahead: Duration,
    found: Option<Found>,
}

impl Device {
    pub(super) fn new(address: ServiceAddress, source: &SourceSpec) -> Self {
        let path = source.path_and_query().unwrap_or_default().to_owned();
        Self {
            address,
            path,
            client: HttpClient::new(source.credentials()),
            ahead: Duration::ZERO,
            found: None,
        }
    }

    pub(super) fn address(&self) -> &ServiceAddress {
        &self.address
    }

    /// Finds the profile that the source reads, if it is not known yet.
    pub(super) async fn find(&mut self) -> Result<Found, OnvifError> {
        if let Some(found) = &self.found {
            return Ok(found.clone());
        }
        let device = self.address.clone();
        // Asked first: its envelope carries no credentials, so a server that is not an ONVIF camera gets no token.
        let clock = self.ask(&device, Question::Clock, |reply| reply.clock()).await?;
        self.ahead = clock - OffsetDateTime::now_utc();
        let stated = self
            .ask(&device, Question::Services, |reply| {
                Ok(Media::ALL.map(|media| (media, reply.service(media))))
            })
            .await?;
        let services = stated.into_iter().filter_map(|(media, stated)| {
            let service = device.sibling(&stated?)?;
            Some((media, service))
        });
        let (mut is_empty, mut looked_at) = (true, 0);
        for (media, service) in services.collect::<Vec<_>>() {
            is_empty = false;
            let profiles = self.profiles(media, &service).await?;
            looked_at += profiles.len();
            if let Some(profile) = of_path(profiles, &self.path) {
                return Ok(self.found.insert(Found { media, service, profile }).clone());
            }
        }
        Err(if is_empty { OnvifError::NoMedia } else { OnvifError::NoProfile(looked_at) })
    }

    /// The profiles of a service, each with the address of its stream.
    async fn profiles(
        &mut self,
        media: Media,
        service: &ServiceAddress,
    ) -> Result<Vec<(String, String)>, OnvifError> {
        let tokens =
            self.ask(service, Question::Profiles(media), move |reply| Ok(reply.profiles(media))).await?;
        let mut profiles = Vec::with_capacity(tokens.len());
        for token in tokens {
            let question = Question::StreamUri(media, &token);
            match self.ask(service, question, move |reply| reply.stream_uri(media)).await {
                Ok(address) => profiles.push((token, address)),
                // A profile without an encoder has no stream.
                Err(OnvifError::Soap(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(profiles)
    }

    /// Asks for a key frame. After a failure the next call looks for the profile again, because the camera may have been reconfigured.
    pub(super) async fn ask_key_frame(&mut self) -> Result<(), OnvifError> {
        let Found { media, service, profile } = self.find().await?;
        let question = Question::KeyFrame(media, &profile);
        let asked = self.ask(&service, question, move |reply| reply.key_frame(media)).await;
        if asked.is_err() {
            self.found = None;
        }
        asked
    }

    /// Asks one question. The answer is parsed on a blocking thread.
    async fn ask<T: Send + 'static>(
        &mut self,
        service: &ServiceAddress,
        question: Question<'_>,
        read: impl FnOnce(&Reply<'_>) -> Result<T, SoapError> + Send + 'static,
    ) -> Result<T, OnvifError> {
        let mut nonce = [0; 16];
        SystemRandom::new().fill(&mut nonce).map_err(|_| OnvifError::NoRandom)?;
        let created = OffsetDateTime::now_utc() + self.ahead;
        let enveloped = |client: &HttpClient| {
            let tells = !question.is_for_everybody() && !client.asks_by_http();
            let credentials = client.credentials().filter(|_| tells);
            let token = credentials.map(|credentials| Token { credentials, nonce, created });
            envelope(question, token.as_ref())
        };
        let answer = self.client.post(service, enveloped).await?;
        let status = answer.status;
        let reading = tokio::task::spawn_blocking(move || {
            let text = str::from_utf8(&answer.body).ok()?;
            Some(Reply::parse(text).and_then(|reply| read(&reply)))
        });
        match reading.await.map_err(|_| OnvifError::Unread)? {
            Some(Ok(read)) if status.is_success() => Ok(read),
            // The fault says more than the status.
            Some(Err(error @ SoapError::Fault(_))) => Err(error.into()),
            Some(Err(error)) if status.is_success() => Err(error.into()),
            None if status.is_success() => Err(OnvifError::Unread),
            _ => Err(OnvifError::Status(status)),
        }
    }
}

/// The profile whose stream has this path and query. Cameras state queries that no user types, so the path alone decides if only one profile has it.
fn of_path(profiles: Vec<(String, String)>, source: &str) -> Option<String> {
    let path = |text: &str| text.split('?').next().unwrap_or_default().trim_end_matches('/').to_owned();
    let stated = |profile: &(String, String)| path_and_query(&profile.1).unwrap_or_default().to_owned();
    if let Some((token, _)) = profiles.iter().find(|profile| stated(profile) == source) {
        return Some(token.clone());
    }
    let mut of_path = profiles.iter().filter(|profile| path(&stated(profile)) == path(source));
    let (token, _) = of_path.next()?;
    of_path.next().is_none().then(|| token.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profile_is_the_one_of_the_sources_path() {
        let of = |addresses: &[&str], source: &str| {
            let numbered = addresses.iter().enumerate();
            of_path(numbered.map(|(at, address)| (at.to_string(), (*address).to_owned())).collect(), source)
        };
        let two = ["rtsp://192.168.1.64:554/ch/101?transportmode=unicast", "rtsp://192.168.1.64/ch/102?a"];
        assert_eq!(of(&two, "/ch/102").as_deref(), Some("1"));
        assert_eq!(of(&two, "/ch/101?transportmode=unicast").as_deref(), Some("0"));
        assert_eq!(of(&two, "/ch/101/").as_deref(), Some("0"));
        assert_eq!(of(&two, "/ch/1"), None);
        let by_query = ["rtsp://cam/x?ch=1", "rtsp://cam/x?ch=2"];
        assert_eq!(of(&by_query, "/x?ch=2").as_deref(), Some("1"));
        assert_eq!(of(&by_query, "/x"), None, "it may be either");
        assert_eq!(of(&["", "rtsp", "rtsp://cam"], "/x"), None);
    }
}
