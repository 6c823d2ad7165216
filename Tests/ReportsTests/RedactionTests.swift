import Reports
import Testing

@Suite struct RedactionTests {
  @Test(arguments: [
    "PASSWORD", "DB_PASSWORD", "dbPassword", "--api-key", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN",
    "SENTRY_DSN", "SESSION_COOKIE", "Authorization", "PGPASSWORD", "apikey", "SSH_PRIVATE_KEY",
    "X-Auth-Token", "MYSQL_PWD", "credentials", "passphrase",
    "GITHUB_PAT", "SSHPASS", "STRIPE_SK", "HMAC", "WEBHOOK_HMAC", "AccountKey", "TLS_PSK",
  ])
  func `names that look like secrets are`(name: String) {
    #expect(Redaction().isSecret(name: name))
  }

  @Test(arguments: [
    "PATH", "PWD", "OLDPWD", "AUTHOR", "MONKEY", "KEYBOARD", "HOME", "LANG", "PORT", "--verbose",
    "COMPASS", "BYPASS", "PATTERN", "PATCH", "SKIP", "DESK", "SPINDLE", "CREDIT", "TASK",
  ])
  func `other names are not`(name: String) {
    #expect(!Redaction().isSecret(name: name))
  }

  @Test func `the list can be extended`() {
    #expect(!Redaction().isSecret(name: "LICENCE_CODE"))
    #expect(Redaction(extra: ["licence"]).isSecret(name: "LICENCE_CODE"))
  }

  @Test func `arguments that carry secrets are masked and the others kept`() {
    let command = Redaction().command([
      "/usr/bin/password-server", "--password=hunter2", "--password", "hunter3", "--port", "80",
      "--token", "--verbose", "DB_PASSWORD=hunter4", "postgres://app:hunter5@db/app?sslmode=off",
      "-H", "Authorization: Bearer hunter6", "--url=https://x/?api_key=hunter7&page=2#top",
      "--author=me", "https://0123456789abcdef0123456789abcdef@sentry.example/7",
      "ssh://git@host/repo", "--passfile", "/etc/pass",
    ])
    #expect(
      command == [
        "/usr/bin/password-server", "--password=[redacted]", "--password", "[redacted]", "--port",
        "80", "--token", "--verbose", "DB_PASSWORD=[redacted]",
        "postgres://app:[redacted]@db/app?sslmode=off", "-H", "Authorization: [redacted]",
        "--url=https://x/?api_key=[redacted]&page=2#top", "--author=me",
        "https://[redacted]@sentry.example/7", "ssh://git@host/repo", "--passfile", "/etc/pass",
      ])
    #expect(!command.joined().contains("hunter"))
  }

  @Test func `the environment keeps its names`() {
    let environment = Redaction().environment([
      ("API_TOKEN", "x"), ("LANG", "C"), ("DATABASE_URL", "mysql://u:p@h/d"), ("EMPTY_KEY", ""),
    ])
    #expect(
      environment == [
        "API_TOKEN": "[redacted]", "LANG": "C", "DATABASE_URL": "mysql://u:[redacted]@h/d",
        "EMPTY_KEY": "",
      ])
  }

  @Test(arguments: [
    ("Bearer hunter2hunter2", "Bearer [redacted]"),
    ("x Authorization: Bearer hunter2", "x Authorization: [redacted]"),
    (
      "{\"user\": \"u\", \"password\": \"hunter2\"}",
      "{\"user\": \"u\", \"password\": \"[redacted]\"}"
    ),
    ("{\\\"apiKey\\\":\\\"hunter2\\\"}", "{\\\"apiKey\\\":\\\"[redacted]\\\"}"),
    ("{'token': 'hun\\'ter2', 'a': 1}", "{'token': '[redacted]', 'a': 1}"),
    ("machine h login u password hunter2 port 1", "machine h login u password [redacted] port 1"),
    (
      "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=hunter2==;EndpointSuffix=x",
      "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=[redacted];EndpointSuffix=x"
    ),
    ("Server=db;User Id=u;Password=hunter2", "Server=db;User Id=u;Password=[redacted]"),
    (
      "-Xmx1g -Djavax.net.ssl.keyStorePassword=hunter2 -Dx=1",
      "-Xmx1g -Djavax.net.ssl.keyStorePassword=[redacted] -Dx=1"
    ),
    (
      "a\n-----BEGIN RSA PRIVATE KEY-----\nhunter\n-----END RSA PRIVATE KEY-----\nb",
      "a\n[redacted]\nb"
    ),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\nhunter", "[redacted]"),
    ("https://x/?sv=1&sig=hunter2&se=3", "https://x/?sv=1&sig=[redacted]&se=3"),
    ("use ghp_hunter2hunter2hunter2", "use [redacted]"),
  ])
  func `secrets inside of values are masked`(text: String, masked: String) {
    #expect(Redaction().text(text) == masked)
    #expect(Redaction().environment([("X", text)])["X"] == masked)
  }

  @Test(arguments: [
    "/usr/bin:/opt/auth:/usr/local/key:/x", "key", "rs=0:di=01;34:ow=40", "a=b&c=d", "--verbose",
    "-----BEGIN CERTIFICATE-----\nAAAA", "pattern=*.txt skip=1",
    "http://[::1]:8080/?page=2", "the bearer of it", "token", "password",
  ])
  func `other values are left as they are`(text: String) {
    #expect(!Redaction().text(text).contains("[redacted]"))
  }

  @Test func `a long hostile text takes no longer than its length`() {
    let texts = ["?", "&", "?a=", "\"", "://", "-----BEGIN ", "password ", "a=", "key: \""].map {
      String(repeating: $0, count: (256 << 10) / $0.utf8.count)
    }
    for text in texts { #expect(!Redaction().text(text).isEmpty) }
  }
}
