"""Kafka's broker settings for logins, TLS, tokens and plug-in classes, accepted without effect.

A listener with TLS or SASL is refused by its protocol, so none of these settings can make a broker
less safe than its user believes. Those that could are accepted with their defaults only.
"""

from __future__ import annotations

from ottla.config.broker_settings.accepted_row import Accepted, Unsupported
from ottla.config.definition import PER_BROKER, AtLeast, Between, OneOf

_row = Accepted("For listeners with SASL, which are not supported yet.")
LOGINS = (
    _row("sasl.client.callback.handler.class", "class", None),
    _row("sasl.enabled.mechanisms", "list", ("GSSAPI",), None, PER_BROKER),
    _row("sasl.jaas.config", "password", None, None, PER_BROKER),
    _row("sasl.kerberos.kinit.cmd", "string", "/usr/bin/kinit", None, PER_BROKER),
    _row("sasl.kerberos.min.time.before.relogin", "long", 60000, None, PER_BROKER),
    _row("sasl.kerberos.principal.to.local.rules", "list", ("DEFAULT",), None, PER_BROKER),
    _row("sasl.kerberos.service.name", "string", None, None, PER_BROKER),
    _row("sasl.kerberos.ticket.renew.jitter", "double", 0.05, None, PER_BROKER),
    _row("sasl.kerberos.ticket.renew.window.factor", "double", 0.8, None, PER_BROKER),
    _row("sasl.login.callback.handler.class", "class", None),
    _row("sasl.login.class", "class", None),
    _row("sasl.login.connect.timeout.ms", "int", None),
    _row("sasl.login.read.timeout.ms", "int", None),
    _row("sasl.login.refresh.buffer.seconds", "short", 300, Between(0, 3600), PER_BROKER),
    _row("sasl.login.refresh.min.period.seconds", "short", 60, Between(0, 900), PER_BROKER),
    _row("sasl.login.refresh.window.factor", "double", 0.8, Between(0, 1), PER_BROKER),
    _row("sasl.login.refresh.window.jitter", "double", 0.05, None, PER_BROKER),
    _row("sasl.login.retry.backoff.max.ms", "long", 10000),
    _row("sasl.login.retry.backoff.ms", "long", 100),
    _row("sasl.mechanism.controller.protocol", "string", "GSSAPI"),
    _row("sasl.mechanism.inter.broker.protocol", "string", "GSSAPI", None, PER_BROKER),
    _row("sasl.oauthbearer.assertion.algorithm", "string", "RS256"),
    _row("sasl.oauthbearer.assertion.claim.aud", "string", None),
    _row("sasl.oauthbearer.assertion.claim.exp.seconds", "int", 300),
    _row("sasl.oauthbearer.assertion.claim.iss", "string", None),
    _row("sasl.oauthbearer.assertion.claim.jti.include", "boolean", False),
    _row("sasl.oauthbearer.assertion.claim.nbf.seconds", "int", 60),
    _row("sasl.oauthbearer.assertion.claim.sub", "string", None),
    _row("sasl.oauthbearer.assertion.file", "string", None),
    _row("sasl.oauthbearer.assertion.private.key.file", "string", None),
    _row("sasl.oauthbearer.assertion.private.key.passphrase", "password", None),
    _row("sasl.oauthbearer.assertion.template.file", "string", None),
    _row("sasl.oauthbearer.client.credentials.client.id", "string", None),
    _row("sasl.oauthbearer.client.credentials.client.secret", "password", None),
    _row("sasl.oauthbearer.clock.skew.seconds", "int", 30),
    _row("sasl.oauthbearer.expected.audience", "list", ()),
    _row("sasl.oauthbearer.expected.issuer", "string", None),
    _row("sasl.oauthbearer.jwks.endpoint.refresh.ms", "long", 3600000),
    _row("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "long", 10000),
    _row("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "long", 100),
    _row("sasl.oauthbearer.jwks.endpoint.url", "string", None),
    _row(
        "sasl.oauthbearer.jwt.retriever.class",
        "class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    ),
    _row(
        "sasl.oauthbearer.jwt.validator.class",
        "class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    ),
    _row("sasl.oauthbearer.scope", "string", None),
    _row("sasl.oauthbearer.scope.claim.name", "string", "scope"),
    _row("sasl.oauthbearer.sub.claim.name", "string", "sub"),
    _row("sasl.oauthbearer.token.endpoint.url", "string", None),
    _row("sasl.server.callback.handler.class", "class", None),
    _row("sasl.server.max.receive.size", "int", 524288),
)
_row = Accepted("For listeners with TLS, which are not supported yet.")
TLS = (
    _row("ssl.allow.dn.changes", "boolean", False),
    _row("ssl.allow.san.changes", "boolean", False),
    _row("ssl.cipher.suites", "list", (), None, PER_BROKER),
    _row("ssl.client.auth", "string", "none", OneOf(("required", "requested", "none")), PER_BROKER),
    _row("ssl.enabled.protocols", "list", ("TLSv1.2", "TLSv1.3"), None, PER_BROKER),
    _row("ssl.endpoint.identification.algorithm", "string", "https", None, PER_BROKER),
    _row("ssl.engine.factory.class", "class", None, None, PER_BROKER),
    _row("ssl.key.password", "password", None, None, PER_BROKER),
    _row("ssl.keymanager.algorithm", "string", "SunX509", None, PER_BROKER),
    _row("ssl.keystore.certificate.chain", "password", None, None, PER_BROKER),
    _row("ssl.keystore.key", "password", None, None, PER_BROKER),
    _row("ssl.keystore.location", "string", None, None, PER_BROKER),
    _row("ssl.keystore.password", "password", None, None, PER_BROKER),
    _row("ssl.keystore.type", "string", "JKS", None, PER_BROKER),
    _row("ssl.principal.mapping.rules", "string", "DEFAULT"),
    _row("ssl.protocol", "string", "TLSv1.3", None, PER_BROKER),
    _row("ssl.provider", "string", None, None, PER_BROKER),
    _row("ssl.secure.random.implementation", "string", None, None, PER_BROKER),
    _row("ssl.trustmanager.algorithm", "string", "PKIX", None, PER_BROKER),
    _row("ssl.truststore.certificates", "password", None, None, PER_BROKER),
    _row("ssl.truststore.location", "string", None, None, PER_BROKER),
    _row("ssl.truststore.password", "password", None, None, PER_BROKER),
    _row("ssl.truststore.type", "string", "JKS", None, PER_BROKER),
)
_row = Accepted("For delegation tokens, which are not supported yet.")
TOKENS = (
    _row("delegation.token.expiry.check.interval.ms", "long", 3600000, AtLeast(1)),
    _row("delegation.token.expiry.time.ms", "long", 86400000, AtLeast(1)),
    _row("delegation.token.max.lifetime.ms", "long", 604800000, AtLeast(1)),
    _row("delegation.token.secret.key", "password", None),
)
_row = Accepted(
    "Java classes and other things that this broker cannot load. Only the default is allowed."
)
POLICIES = (
    _row("alter.config.policy.class.name", "class", None, Unsupported(None)),
    _row("client.quota.callback.class", "class", None, Unsupported(None)),
    _row("config.providers", "list", (), Unsupported(()), PER_BROKER),
    _row("cordoned.log.dirs", "list", (), Unsupported(()), PER_BROKER),
    _row("create.topic.policy.class.name", "class", None, Unsupported(None)),
    _row(
        "principal.builder.class",
        "class",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        Unsupported("org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"),
        PER_BROKER,
    ),
    _row("security.providers", "string", None, Unsupported(None)),
)
