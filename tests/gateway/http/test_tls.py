"""The gateway's certificate: taken, renewed while it runs, and refused with a sentence."""

import asyncio
import logging
import ssl
from pathlib import Path

import certificates
import grpc
import httpx
import pytest
from gateway_process import gateway_at, lay_out, put
from gateway_world import endpoint_of, text_of
from tritonclient.grpc import service_pb2, service_pb2_grpc

from gateway.http.tls import Tls, TlsFileError

BODY = {"inputs": text_of(3)}


async def presented(tls: Tls) -> bytes:
    """The certificate that a new connection is shown, DER."""

    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=tls.context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname = False
        trusting.verify_mode = ssl.CERT_NONE
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return shown


def content_of(certificate: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.read_text())


async def test_a_certificate_that_changes_is_shown_to_new_connections(tmp_path: Path) -> None:
    certificate, key = certificates.write(tmp_path, "first")
    tls = Tls(certificate, key)
    first = content_of(certificate)
    assert await presented(tls) == first
    certificates.write(tmp_path, "second")
    tls.look()
    assert await presented(tls) == content_of(certificate) != first


async def test_files_that_do_not_go_together_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = certificates.write(tmp_path, "first")
    tls = Tls(certificate, key)
    first, secret = content_of(certificate), key.read_bytes()
    certificates.write(tmp_path, "second")
    key.write_bytes(secret)  # as half way through a change
    with caplog.at_level(logging.WARNING):
        tls.look()
    assert "going on with the last certificate" in caplog.text
    assert await presented(tls) == first


def test_what_is_no_certificate_is_a_sentence_without_its_content(tmp_path: Path) -> None:
    certificate, key = certificates.write(tmp_path, "first")
    key.write_text("a secret that is no key")
    with pytest.raises(TlsFileError, match=r"are no certificate and its key") as caught:
        Tls(certificate, key)
    assert "a secret" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TlsFileError, match=r"tls\.crt can't be read"):
        Tls(tmp_path / "tls.crt", tmp_path / "tls.key")


@pytest.mark.real  # starts a process
async def test_http_and_grpc_are_served_with_it(tmp_path: Path) -> None:
    certificate, key = certificates.write(tmp_path, "gateway")
    (one,) = lay_out(tmp_path, "1")
    put(tmp_path, endpoint_of(one))
    flags = ("--tls-certificate-file", str(certificate), "--tls-key-file", str(key))
    async with gateway_at(tmp_path, *flags) as running:
        listens = await running.line("gateway listens")
        trusted = ssl.create_default_context(cafile=str(certificate))
        url = f"https://127.0.0.1:{listens['http_port']}/endpoints/sentiment"
        async with httpx.AsyncClient(verify=trusted, trust_env=False, timeout=60) as http:
            assert (await http.post(url, json=BODY)).status_code == 200
        credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
        target = f"localhost:{listens['grpc_port']}"
        async with grpc.aio.secure_channel(target, credentials) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            assert (await stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=60)).live
        with pytest.raises(httpx.RemoteProtocolError):  # in the clear there is no answer
            await running.http.get("/endpoints")
