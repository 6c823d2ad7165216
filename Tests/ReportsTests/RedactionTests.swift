import Reports
import Testing

@Suite struct RedactionTests {
  @Test(arguments: [
    "PASSWORD", "DB_PASSWORD", "dbPassword", "--api-key", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN",
    "SENTRY_DSN", "SESSION_COOKIE", "Authorization", "PGPASSWORD", "apikey", "SSH_PRIVATE_KEY",
    "X-Auth-Token", "MYSQL_PWD", "credentials", "passphrase",
  ])
  func `names that look like secrets are`(name: String) {
    #expect(Redaction().isSecret(name: name))
  }

  @Test(arguments: [
    "PATH", "PWD", "OLDPWD", "AUTHOR", "MONKEY", "KEYBOARD", "HOME", "LANG", "PORT", "--verbose",
    "COMPASS", "BYPASS",
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
}
