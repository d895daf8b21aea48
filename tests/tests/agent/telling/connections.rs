//! API servers that cannot be spoken to: nobody listens, or somebody whose certificate another authority has signed. What was tried and what to check is said, and the node is protected.

use super::*;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// The certificate of an authority. These were made with `openssl req -x509` for a hundred years, and nobody has their keys.
const OURS: &str = include_str!("certificates/ours.pem");
const THEIRS: &str = include_str!("certificates/theirs.pem");

/// The certificate of a server at 127.0.0.1, signed by the second of them.
const SERVER: &[u8] = include_bytes!("certificates/server.der");

fn kubeconfig(server: &str, more: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{{name: a, cluster: {{server: '{server}'{more}}}}}]\ncontexts: [{{name: a, context: {{cluster: a, user: a}}}}]\nusers: [{{name: a, user: {{}}}}]\n"
    )
}

/// Length and content, as TLS writes them.
fn counted(bytes_of_length: usize, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    [&length[length.len() - bytes_of_length..], content].concat()
}

/// What a server of TLS 1.2 says first: hello, its certificate, a key and that it is done (RFC 5246, 7.4; RFC 8422, 5.4). No client goes on from there, for nobody has signed the key.
fn greeting() -> Vec<u8> {
    const ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: [u8; 2] = [0xc0, 0x2b];
    const X25519: [u8; 3] = [3, 0, 29];
    const ECDSA_SECP256R1_SHA256: [u8; 2] = [4, 3];
    let hello = [&[3, 3][..], &[7; 32], &[0], &ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, &[0]].concat();
    let certificate = counted(3, &counted(3, SERVER));
    let signature = counted(2, &[0; 8]);
    let key = [&X25519[..], &counted(1, &[9; 32]), &ECDSA_SECP256R1_SHA256, &signature].concat();
    let said = [(2, hello), (11, certificate), (12, key), (14, Vec::new())];
    let said = said.into_iter().flat_map(|(of, content)| {
        let said: Vec<u8> = [of].into_iter().chain(counted(3, &content)).collect();
        [&[22, 3, 3][..], &counted(2, &said)].concat()
    });
    said.collect()
}

/// Listens for as long as the test's process lives.
fn greet_all() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let greet = |mut stream: TcpStream| {
        stream.read_exact(&mut [0; 5])?;
        stream.write_all(&greeting())?;
        // Its client has the last word.
        stream.read_to_end(&mut Vec::new())
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let _ = greet(stream);
        }
    });
    address
}

/// Has a pod evicted beside such an API server; returns what is said of it, each once.
fn said_beside(kubeconfig: &str) -> Vec<String> {
    let (mut lab, hog, api) = beside_an_api_server();
    let web = another(&mut lab, &api, "web", 100);
    let mut agent = start_by(kubeconfig, CONFIG, &lab, &["--enforce"]);
    kill(&lab, &hog);
    let what =
        ["pods of this node: ", "the Node: ", "the API server is not told of evictions yet: "];
    let of = |agent: &Agent, begins: &str| -> Vec<String> {
        let all = agent.seen.iter().filter_map(|record| record["what"].as_str());
        all.filter(|what| what.starts_with(begins)).map(str::to_owned).collect()
    };
    for begins in what {
        wait_for(&format!("{begins:?} to be said"), || {
            agent.take_in();
            !of(&agent, begins).is_empty()
        });
    }
    assert!(!web.payload.is_killed());
    let said = what.iter().flat_map(|begins| of(&agent, begins)).collect();
    agent.stop();
    said
}

#[test]
fn an_api_server_that_nobody_is_is_told_by_its_address() {
    // Nobody is given this port who does not ask for it by its number.
    let free = "127.0.0.1:1";
    let said = said_beside(&kubeconfig(&format!("http://{free}"), ""));
    assert_eq!(said.len(), 3, "{said:#?}");
    for what in said {
        assert!(what.contains(&format!("http://{free}")), "{what}");
        assert!(what.contains("Connection refused"), "{what}");
    }
}

#[test]
fn an_api_server_whose_certificate_another_authority_has_signed_is_told_as_such() {
    let address = greet_all();
    let said = |authority: &str| {
        let file = crate::config(authority);
        let named = format!(", certificate-authority: '{}'", file.path().display());
        said_beside(&kubeconfig(&format!("https://{address}"), &named))
    };
    let of_ours = said(OURS);
    assert_eq!(of_ours.len(), 3, "{of_ours:#?}");
    for what in of_ours {
        assert!(what.contains(&format!("https://{address}")), "{what}");
        assert!(
            what.contains("UnknownIssuer; its certificate is not signed by the authority"),
            "{what}"
        );
        assert!(what.contains("`certificate-authority` in the kubeconfig"), "{what}");
    }
    // It is the authority that was wrong: with the right one it is not complained of.
    for what in said(THEIRS) {
        assert!(!what.contains("UnknownIssuer"), "{what}");
    }
}
