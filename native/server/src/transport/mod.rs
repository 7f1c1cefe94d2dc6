//! Connections: sockets, encryption, HTTP/1.1 and HTTP/2, and what a client may hold open.

pub mod connection;
pub mod connections;
pub mod half_close;
pub mod http2;
pub mod listener;
pub mod tls;
