# For a tap: Formula/wf-run.rb
class WfRun < Formula
  desc "Runs ternary language models on ordinary CPUs"
  homepage "@HOMEPAGE@"
  version "@VERSION@"
  license any_of: ["Apache-2.0", "MIT"]

  on_macos do
    url "@BASE@/wf-run-@VERSION@-macos-universal.tar.gz"
    sha256 "@SHA256:macos-universal@"
  end
  on_linux do
    on_intel do
      url "@BASE@/wf-run-@VERSION@-linux-x86_64.tar.gz"
      sha256 "@SHA256:linux-x86_64@"
    end
    on_arm do
      url "@BASE@/wf-run-@VERSION@-linux-aarch64.tar.gz"
      sha256 "@SHA256:linux-aarch64@"
    end
  end

  def install
    bin.install "wf-run"
    doc.install "README.md", "CHANGELOG.md", "THIRD_PARTY.md"
    generate_completions_from_executable(bin/"wf-run", "completions")
  end

  test do
    story = shell_output("#{bin}/wf-run generate --temperature 0 --max-tokens 20 'Tell me a story about a fox named Pip.'")
    assert_match "Have you heard of Pip?", story
  end
end
