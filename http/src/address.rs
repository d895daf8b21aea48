//! Where to listen, and what becomes of an address that somebody else has.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// How often an address that somebody has is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// An address that was asked for.
#[derive(Debug)]
pub enum Taken {
    /// It is listened on.
    Ours(std::net::TcpListener),
    /// Somebody else has it, for as long as they are there: anybody on this host may take a port.
    AnotherHas(SocketAddr),
}

/// Reads an address to listen on: `ADDRESS:PORT`, or `:PORT` for every address of this host.
///
/// # Errors
/// What would be right, where it is neither.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let everywhere = text.strip_prefix(':').and_then(|port| port.parse().ok());
    everywhere
        .map(|port| SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))
        .or_else(|| text.parse().ok())
        .ok_or_else(|| "give an address with a port, as in 127.0.0.1:8080, or :8080".to_owned())
}

/// Takes an address, ready to be served by tokio. `[::]` takes those of IPv4 too, and those alone on a host without IPv6.
///
/// # Errors
/// Where the address is taken, is not this host's, or may not be had.
pub fn listen(at: SocketAddr) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(at).or_else(|error| {
        let is_everywhere = at.ip() == Ipv6Addr::UNSPECIFIED;
        // The port is taken: that says more than what IPv4 alone would answer.
        if !is_everywhere || error.kind() == io::ErrorKind::AddrInUse {
            return Err(error);
        }
        std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, at.port()))
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The same where an address that somebody else has is no mistake of whoever named it.
///
/// # Errors
/// Where the address is not this host's, or may not be had.
pub fn take(at: SocketAddr) -> io::Result<Taken> {
    match listen(at) {
        Ok(listener) => Ok(Taken::Ours(listener)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(Taken::AnotherHas(at)),
        Err(error) => Err(error),
    }
}

impl Taken {
    /// The listener, as soon as it can be had; must be called inside an event loop.
    ///
    /// # Errors
    /// What else the kernel says than that somebody has the address.
    pub async fn listener(self) -> io::Result<tokio::net::TcpListener> {
        let mut taken = self;
        loop {
            match taken {
                Self::Ours(listener) => return tokio::net::TcpListener::from_std(listener),
                Self::AnotherHas(at) => {
                    tokio::time::sleep(AGAIN).await;
                    taken = take(at)?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port_and_may_be_all_of_this_host() {
        assert!(address("127.0.0.1").is_err() && address(":").is_err() && address(":x").is_err());
        assert_eq!(address(":8080"), Ok("[::]:8080".parse().unwrap()));
        let listener = listen(address(":0").unwrap()).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let taken = listen(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
        assert_eq!(taken.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn an_address_that_somebody_has_is_had_once_they_are_gone() {
        let squatter = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = squatter.local_addr().unwrap();
        let taken = take(at).unwrap();
        assert!(matches!(taken, Taken::AnotherHas(_)));
        drop(squatter);
        let executor = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // It does not sleep as long as it says.
            .start_paused(true)
            .build()
            .unwrap();
        let listener = executor.block_on(taken.listener()).unwrap();
        assert_eq!(listener.local_addr().unwrap(), at);
    }
}
