# Installs wf-run @VERSION@ for one user of Windows, without an administrator: downloads the archive, compares
# its SHA-256, unpacks it, tries the program, and only then puts it in place.
#
#     powershell -c "irm @BASE@/install.ps1 | iex"
#     powershell -File install.ps1 [-Prefix FOLDER] [-Uninstall] [-KeepPath]
#
# The program becomes FOLDER\wf-run.exe; FOLDER is $env:LOCALAPPDATA\Programs\wf-run. It is added to the user's
# PATH, unless -KeepPath says otherwise. $env:WF_PREFIX, WF_UNINSTALL=1 and WF_KEEP_PATH=1 stand for the
# parameters, and WF_BASE names another address of the archives, such as a mirror.
param([string]$Prefix = $env:WF_PREFIX, [switch]$Uninstall, [switch]$KeepPath)

# Everything happens in functions and ends by errors, because `exit` would close the window of `iex`.
function Install-WfRun([string]$Prefix, [bool]$Uninstall, [bool]$KeepPath) {
    $ErrorActionPreference = 'Stop'
    # The bar makes downloads many times slower.
    $ProgressPreference = 'SilentlyContinue'
    $version = '@VERSION@'
    $base = if ($env:WF_BASE) { $env:WF_BASE.TrimEnd('/') } else { '@BASE@' }

    function Test-Windows {
        # PowerShell 5 runs on Windows alone and has no such variable.
        ($null -eq (Get-Variable IsWindows -ErrorAction Ignore)) -or $IsWindows
    }

    # The archive's name for this system.
    function Get-Target {
        if (-not (Test-Windows)) { throw "install.ps1: this is not Windows: use install.sh from $base/install.sh" }
        $processor = if ($env:PROCESSOR_ARCHITEW6432) { $env:PROCESSOR_ARCHITEW6432 } else { $env:PROCESSOR_ARCHITECTURE }
        switch ($processor) {
            'AMD64' { 'windows-x86_64' }
            'ARM64' {
                Write-Host 'There is no archive for Windows on ARM yet: this is the one for x86-64, which Windows emulates.'
                'windows-x86_64'
            }
            default {
                throw "install.ps1: there is no archive of wf-run for Windows on $processor. From source, with Rust: cargo install wf-run --locked"
            }
        }
    }

    # Downloads a file, with a second attempt.
    function Get-Download([string]$Name, [string]$Folder) {
        $file = Join-Path $Folder $Name
        foreach ($attempt in 1, 2) {
            try {
                Invoke-WebRequest -UseBasicParsing -Uri "$base/$Name" -OutFile $file -TimeoutSec 600
                return $file
            } catch {
                if ($attempt -eq 2) {
                    throw "install.ps1: could not download ${base}/${Name}: $($_.Exception.Message) `$env:WF_BASE names another address."
                }
                Start-Sleep -Seconds 1
            }
        }
    }

    # Compares a file with its line in SHA256SUMS.
    function Confirm-Digest([string]$File, [string]$Sums) {
        $name = Split-Path -Leaf $File
        $line = "^([0-9a-f]{64}) [ *]$([regex]::Escape($name))$"
        $found = @(Get-Content -LiteralPath $Sums | Where-Object { $_ -match $line })
        if ($found.Count -ne 1) { throw "install.ps1: $base/SHA256SUMS has no line for $name" }
        $expected = $found[0].Substring(0, 64)
        $digest = (Get-FileHash -Algorithm SHA256 -LiteralPath $File).Hash.ToLowerInvariant()
        if ($digest -ne $expected) {
            throw "install.ps1: $name is not what was published: its SHA-256 is $digest, not $expected. The download was cut or changed; nothing was installed."
        }
    }

    # Changes the folders of the user's PATH. Entries such as %USERPROFILE% stay as they are written.
    function Edit-Path([scriptblock]$Change) {
        $key = [Microsoft.Win32.Registry]::CurrentUser.OpenSubKey('Environment', $true)
        try {
            $before = [string]$key.GetValue('Path', '', 'DoNotExpandEnvironmentNames')
            $after = @(& $Change @($before -split ';' | Where-Object { $_ })) -join ';'
            if ($after -ne $before) {
                $key.SetValue('Path', $after, 'ExpandString')
                # Tells programs that are running; a variable that is set and removed does that.
                [Environment]::SetEnvironmentVariable('WF_RUN_INSTALLED', '1', 'User')
                [Environment]::SetEnvironmentVariable('WF_RUN_INSTALLED', $null, 'User')
            }
        } finally { $key.Close() }
    }

    # Moves a program away that may be running: Windows renames such a file, but does not replace it.
    function Move-Old([string]$Program) {
        Get-ChildItem -LiteralPath $Prefix -Filter 'wf-run.old.*' -ErrorAction Ignore | Remove-Item -Force -ErrorAction Ignore
        if (Test-Path -LiteralPath $Program) {
            Move-Item -LiteralPath $Program -Destination (Join-Path $Prefix "wf-run.old.$([guid]::NewGuid()).exe")
            Get-ChildItem -LiteralPath $Prefix -Filter 'wf-run.old.*' | Remove-Item -Force -ErrorAction Ignore
        }
    }

    function Remove-Program {
        if (-not (Test-Path -LiteralPath $program)) {
            Write-Host "There is no wf-run in $Prefix."
            return
        }
        if (-not (Test-Path -LiteralPath (Join-Path $Prefix 'THIRD_PARTY.md'))) {
            throw "install.ps1: $program was not installed by this script: remove it the way it came"
        }
        Move-Old $program
        foreach ($name in $documents) { Remove-Item -LiteralPath (Join-Path $Prefix $name) -Force -ErrorAction Ignore }
        Get-ChildItem -LiteralPath $Prefix -Filter 'wf-run-*.cdx.json' | Remove-Item -Force
        if (-not (Get-ChildItem -LiteralPath $Prefix -Force)) { Remove-Item -LiteralPath $Prefix }
        Edit-Path { param($folders) $folders | Where-Object { $_ -ne $Prefix } }
        Write-Host "wf-run is removed from $Prefix. Downloaded models stay in $env:LOCALAPPDATA\huggingface, unless HF_HOME names another folder."
    }

    if (-not $Prefix) {
        if (-not $env:LOCALAPPDATA) { throw 'install.ps1: LOCALAPPDATA is not set: name a folder with -Prefix' }
        $Prefix = Join-Path $env:LOCALAPPDATA 'Programs\wf-run'
    }
    $Prefix = $ExecutionContext.SessionState.Path.GetUnresolvedProviderPathFromPSPath($Prefix)
    $program = Join-Path $Prefix 'wf-run.exe'
    $documents = 'README.md', 'CHANGELOG.md', 'LICENSE-APACHE', 'LICENSE-MIT', 'THIRD_PARTY.md'
    if ($Uninstall) { Remove-Program; return }

    $name = "wf-run-$version-$(Get-Target)"
    # Windows PowerShell 5 begins with older versions of TLS.
    [Net.ServicePointManager]::SecurityProtocol = [Net.ServicePointManager]::SecurityProtocol -bor [Net.SecurityProtocolType]::Tls12
    try { New-Item -ItemType Directory -Force -Path $Prefix | Out-Null } catch {
        throw "install.ps1: cannot make the folder ${Prefix}: $($_.Exception.Message) -Prefix names another one."
    }
    # In the same folder, so that the last step is a rename.
    $work = Join-Path $Prefix ".install.$([guid]::NewGuid())"
    try {
        New-Item -ItemType Directory -Path $work | Out-Null
        Write-Host "downloading $name.zip"
        $sums = Get-Download 'SHA256SUMS' $work
        $archive = Get-Download "$name.zip" $work
        Confirm-Digest $archive $sums
        Expand-Archive -LiteralPath $archive -DestinationPath $work
        $unpacked = Join-Path $work $name
        $answer = & (Join-Path $unpacked 'wf-run.exe') --version
        if ($LASTEXITCODE -ne 0) { throw "install.ps1: the program of $name.zip does not run here: exit code $LASTEXITCODE" }
        Move-Old $program
        foreach ($file in Get-ChildItem -LiteralPath $unpacked -File | Where-Object { $_.Name -ne 'wf-run.exe' }) {
            Move-Item -Force -LiteralPath $file.FullName -Destination (Join-Path $Prefix $file.Name)
        }
        Move-Item -LiteralPath (Join-Path $unpacked 'wf-run.exe') -Destination $program
    } finally {
        Remove-Item -Recurse -Force -LiteralPath $work -ErrorAction Ignore
    }
    Write-Host "$answer is installed: $program"
    $command = "& '$program'"
    if (-not $KeepPath) {
        Edit-Path { param($folders) if ($folders -contains $Prefix) { $folders } else { @($folders) + $Prefix } }
        if (($env:Path -split ';') -notcontains $Prefix) { $env:Path += ";$Prefix" }
        $command = 'wf-run'
    }
    Write-Host "Try it:`n    $command generate `"Tell me a story about a fox named Pip.`"`n    $command serve      # a chat page and an API at http://127.0.0.1:30000"
}

Install-WfRun -Prefix $Prefix -Uninstall ($Uninstall -or $env:WF_UNINSTALL -eq '1') -KeepPath ($KeepPath -or $env:WF_KEEP_PATH -eq '1')
