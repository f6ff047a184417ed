//! A connection between a holder and a node, which can be cut.

use std::io;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections until it is cut. Then they break, and new ones are not accepted.
pub(super) struct Cable {
    /// Address at which the holder reaches the node.
    pub(super) endpoint: String,
    cut: watch::Sender<bool>,
}

impl Cable {
    pub(super) async fn to(node: String) -> io::Result<Self> {
        let cut = watch::Sender::new(false);
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = listener.local_addr()?.to_string();
        tokio::spawn(carry(listener, node, cut.subscribe()));
        Ok(Self { endpoint, cut })
    }

    pub(super) fn cut(&self) {
        self.cut.send_replace(true);
    }
}

async fn carry(listener: TcpListener, node: String, mut cut: watch::Receiver<bool>) {
    let is_cut = cut.clone();
    let accepting = async {
        while let Ok((mut near, _)) = listener.accept().await {
            let (node, mut cut) = (node.clone(), is_cut.clone());
            tokio::spawn(async move {
                let carrying = async {
                    let mut far = TcpStream::connect(node).await?;
                    copy_bidirectional(&mut near, &mut far).await
                };
                tokio::select! {
                    _ = carrying => {}
                    _ = cut.wait_for(|cut| *cut) => {}
                }
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = cut.wait_for(|cut| *cut) => {}
    }
}
