// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/moonloop/moonloop/agent"
)

// every is the time between two updates of the view.
const every = 250 * time.Millisecond

// Screen is a live view on a terminal. Make it with [Show].
type Screen struct {
	terminal io.Writer
	program  *tea.Program
	done     chan struct{}
}

// Show draws what look returns on a terminal until [Screen.Close] is called. It calls look on a goroutine of its own. It reads
// no keys and handles no signals.
func Show(terminal io.Writer, look func() agent.View) *Screen {
	s := &Screen{
		terminal: terminal,
		program: tea.NewProgram(model{look: look, width: 80}, tea.WithOutput(terminal), tea.WithInput(nil),
			tea.WithoutSignalHandler(), tea.WithContext(context.Background())),
		done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		_, _ = s.program.Run() // a replay continues even if the terminal is gone
	}()
	return s
}

// Println prints a line above the view or, once the view is closed, simply to the terminal.
func (s *Screen) Println(text string) {
	select {
	case <-s.done:
		fmt.Fprintln(s.terminal, text)
	default:
		s.program.Println(text)
	}
}

// Close removes the view. It may be called more than once.
func (s *Screen) Close() {
	s.program.Send(closing{})
	<-s.done
}

// model is what bubbletea draws.
type model struct {
	look    func() agent.View
	view    agent.View
	width   int
	closing bool
}

type (
	tick    struct{}
	closing struct{}
)

func wait() tea.Cmd { return tea.Tick(every, func(time.Time) tea.Msg { return tick{} }) }

func (m model) Init() tea.Cmd { return func() tea.Msg { return tick{} } }

func (m model) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tick:
		m.view = m.look()
		return m, wait()
	case tea.WindowSizeMsg:
		m.width = message.Width
	case closing:
		m.closing = true
		return m, tea.Quit
	}
	return m, nil
}

func (m model) View() tea.View {
	if m.closing {
		return tea.NewView("")
	}
	return tea.NewView(render(m.view, m.width))
}
