"""Values of nginx's in other proxies' words."""

from __future__ import annotations

import pytest

from lab.analysis.migration.values import LeaveError, UntranslatableError, translated


@pytest.mark.parametrize(
    ("template", "value", "there"),
    [
        ("{seconds}s", "60", "60s"),
        ("{seconds}s", "1h 30m", "5400s"),
        ("{seconds}s", "500ms", "0.5s"),
        ("{seconds}", "1d", "86400"),
        ("{whole_seconds}", "500ms", "1"),
        ("{bytes}", "8k", "8192"),
        ("{limit}", "0", "no limit"),
        ("{header_kb}", "4 8k", "32"),
        ("{header_bytes}", "4 8k", "32768"),
        ("{line_bytes}", "4 16k", "16384"),
        ('{truth:true="" false=}', "true", ""),
        ("{inverse}", "off", "true"),
        ("{onoff}", "true", "on"),
        ("{value:0=-1 *=*}", "0", "-1"),
        ("{value:0=-1 *=*}", "320", "320"),
        ("{tls_min}", "TLSv1.3 TLSv1.2", "1.2"),
        ("{tls_max:1.3=VersionTLS13}", "TLSv1.2 TLSv1.3", "VersionTLS13"),
        ("-all {tls_plus}", "TLSv1.3 TLSv1.2 TLSv1", "-all +TLSv1 +TLSv1.2 +TLSv1.3"),
        ("{bytes:<8193= *=more}", "16k", "more"),
        ("{duration}", "604800", "168h"),
        ("{duration}", "100000", "1667m"),
        ("{duration}", "500ms", "500ms"),
        ("{nginx_time}", "0", "0s"),
        ("{size}", "16384m", "16g"),
        ("{size}", "0", "0k"),
        ("{size}", "1500", "1500"),
        ("{connections:<65536=*}", "4096", "4096"),
        ("{reuses}", "1", "0"),
        ("{list}", "10.0.0.0/8, fe80::/10", "10.0.0.0/8,fe80::/10"),
        ("{list_yaml}", "X25519:P-256", "[X25519, P-256]"),
        ("{ciphers_iana}", "ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        ("{ciphers_iana}", "ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
        ("{ciphers_ecdhe}", "ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-CHACHA20-POLY1305", "[ECDHE-RSA-AES128-GCM-SHA256, ECDHE-RSA-CHACHA20-POLY1305]"),
        ("{log_buffer_kb}", "buffer=64k flush=5s", "64"),
        ("{retries}", "3", "2"),
        ("[{{a: {value}}}]", "1", "[{a: 1}]"),
    ],
)  # fmt: skip
def test_a_value_is_translated(template: str, value: str, there: str) -> None:
    assert translated(template, value) == there


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{seconds}", "0"),
        ("{seconds}", "soon"),
        ("{bytes}", "8q"),
        ("{truth}", "perhaps"),
        ("{value:true=a false=b}", "on"),
        ("{tls_min}", "SSLv3 TLSv1.2"),
        ("{list_yaml}", "HIGH:!aNULL"),
        ("{duration}", "100000h"),
        ("{size}", "1.5m"),
        ("{size}", "16383m"),
        ("{connections}", "0"),
        ("{connections:<65536=*}", "65536"),
        ("{ciphers_iana}", "DHE-RSA-AES128-GCM-SHA256"),
        ("{idle}", "0"),
        ("{count}", "many"),
        ("{retries}", "0"),
        ("{log_buffer_kb}", "gzip"),
    ],
)
def test_what_has_no_translation_is_refused_with_the_reason(template: str, value: str) -> None:
    with pytest.raises(UntranslatableError, match="."):
        translated(template, value)


def test_what_the_successor_does_by_itself_is_left() -> None:
    by_itself = {
        "{count}": "auto",
        "{list_yaml}": "auto",
        "{header_kb:<81= *=*}": "4 16k",
        '{truth:true="" false=}': "off",
    }
    for template, value in by_itself.items():
        with pytest.raises(LeaveError):
            translated(template, value)


def test_another_keys_value_may_be_part_of_it() -> None:
    assert translated("{value} {proxy-buffer-size}", "8", {"proxy-buffer-size": "16k"}) == "8 16k"
    assert translated("{{size: {proxy-buffer-size|size}}}", "8", {"proxy-buffer-size": "16384"}) == "{size: 16k}"
