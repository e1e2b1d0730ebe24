// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package prompt

// This file makes the images in the prompts of rows. Images with one id and size are identical, byte for byte, in all rows: an engine's
// cache of images has the hits that production had. They show a pattern, because an encoder takes the same time for any image.

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/moonloop/moonloop/internal/splitmix"
	"github.com/moonloop/moonloop/mooncake"
)

// ImageFormat is the file format of images.
type ImageFormat string

// The formats.
const (
	PNG  ImageFormat = "png"
	JPEG ImageFormat = "jpeg" // takes longer to make, about 10 ms per million pixels
)

// Images are the settings of images. The zero Images sends those in the rows.
type Images struct {
	Each   int         // unique images for each row that has none; 0 = none
	Size   ImageSize   // of an image without a size in the row; zero = DefaultSide for both sides
	Format ImageFormat // default PNG
	// Tokens is the number of prompt tokens that the engine counts for one image. The prompt has that many words fewer. 0 = unknown: the
	// words alone have the row's input length, and the sum is not checked.
	Tokens int
}

// ImageSize is the size of an image in pixels.
type ImageSize struct{ Width, Height int }

// DefaultSide is the default width and height of images, in pixels.
const DefaultSide = 512

// withDefaults fills in defaults for zeros.
func (i Images) withDefaults() Images {
	i.Size = cmp.Or(i.Size, ImageSize{DefaultSide, DefaultSide})
	i.Format = cmp.Or(i.Format, PNG)
	return i
}

// check describes what is wrong with the settings; empty = nothing.
func (i Images) check() string {
	switch rule := (mooncake.Image{Width: i.Size.Width, Height: i.Size.Height}).CheckSize(); {
	case rule != "":
		return fmt.Sprintf("image size %dx%d: it %s", i.Size.Width, i.Size.Height, rule)
	case i.Format != PNG && i.Format != JPEG:
		return fmt.Sprintf("image format %q: want %s or %s", i.Format, PNG, JPEG)
	case i.Each < 0 || i.Each > mooncake.MaxImages:
		return fmt.Sprintf("images %d: want 0 to %d", i.Each, mooncake.MaxImages)
	case i.Each*i.Size.Width*i.Size.Height > mooncake.MaxRowPixels:
		return fmt.Sprintf("images %d of %dx%d: a request has at most %d pixels, which take seconds to make: ask for fewer or smaller images",
			i.Each, i.Size.Width, i.Size.Height, mooncake.MaxRowPixels)
	case i.Tokens < 0:
		return fmt.Sprintf("image tokens %d: want 0 or more", i.Tokens)
	}
	return ""
}

// gallery makes images and caches those that were made last. It makes one at a time, to limit memory.
type gallery struct {
	mu   sync.Mutex
	kept map[mooncake.Image][]byte // in base64
	size int
}

// maxGallery is the maximum size of cached images, in bytes.
const maxGallery = 32 << 20

// imageSalt separates the ids of images from those of blocks.
const imageSalt = 0x1a3c5e7092b4d6f8

// warmSalt separates the images of warm-up requests from those of the trace.
const warmSalt = 0x6c8e0a2c4e6f8192

// errStopped is the error of a row whose images were not made, because the run does not need them any more.
var errStopped = errors.New("its images were not made, because the run was stopped")

// Until makes every Build fail that is making images, or is about to, when done is closed: the images of a row can take seconds, and those of
// the rows before it are made first. Call it while nothing is being built.
func (b *Builder) Until(done <-chan struct{}) { b.done = done }

// stopped reports whether images are not needed any more.
func (b *Builder) stopped() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// images returns the images of a row, each as an element of a message's content.
func (b *Builder) images(index int64, row *mooncake.Row) ([][]byte, error) {
	of := b.opt.Images
	list := row.Images
	if len(list) == 0 && row.Kind() <= mooncake.KindText {
		for i := range of.Each {
			list = append(list, mooncake.Image{ID: privateID(index, 1<<31|int64(i))})
		}
	}
	list, pixels := slices.Clone(list), 0
	for i := range list {
		if list[i].Width == 0 {
			list[i].Width, list[i].Height = of.Size.Width, of.Size.Height
		}
		pixels += list[i].Width * list[i].Height
	}
	if pixels > mooncake.MaxRowPixels {
		return nil, fmt.Errorf("%w: its images have %d pixels in all, those without a size as --image-size says; at most %d are allowed: give a smaller size",
			ErrRow, pixels, mooncake.MaxRowPixels)
	}
	var out [][]byte
	for _, one := range list {
		if index < 0 {
			one.ID ^= warmSalt
		}
		data := b.gallery.picture(one, b.opt.Seed, of.Format, b.stopped)
		if data == nil {
			return nil, errStopped
		}
		media := "image/" + string(of.Format)
		var element []byte
		switch b.opt.Endpoint {
		case Messages:
			element = append(fmt.Appendf(nil, `{"type":"image","source":{"type":"base64","media_type":%q,"data":"`, media), data...)
			element = append(element, `"}}`...)
		case Responses:
			element = append(fmt.Appendf(nil, `{"type":"input_image","image_url":"data:%s;base64,`, media), data...)
			element = append(element, `"}`...)
		default:
			element = append(fmt.Appendf(nil, `{"type":"image_url","image_url":{"url":"data:%s;base64,`, media), data...)
			element = append(element, `"}}`...)
		}
		out = append(out, element)
	}
	return out, nil
}

// withImages adds images after the text of a message of the user.
func (b *Builder) withImages(turn []part, images [][]byte) []part {
	const head = `{"role":"user","content":`
	kind := "text"
	if b.opt.Endpoint == Responses {
		kind = "input_text"
	}
	last := len(turn) - 1
	out := append(make([]part, 0, len(turn)+1), turn...)
	out[0].raw = append([]byte(head+`[{"type":"`+kind+`","text":`), out[0].raw[len(head):]...)
	end := append([]byte(nil), out[last].raw...) // without its brace, which now ends the text
	for _, element := range images {
		end = append(append(end, ','), element...)
	}
	out[last].raw = append(end, "]}"...)
	return out
}

// picture returns one image in base64; nil if the run was stopped before its turn came.
func (g *gallery) picture(one mooncake.Image, seed uint64, format ImageFormat, stopped func() bool) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	if stopped() {
		return nil
	}
	if data, known := g.kept[one]; known {
		return data
	}
	var file bytes.Buffer
	if format == JPEG {
		_ = jpeg.Encode(&file, grey(one, seed), nil) // writing to a buffer cannot fail
	} else {
		_ = (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&file, mosaic(one, seed)) // likewise
	}
	data := base64.StdEncoding.AppendEncode(nil, file.Bytes())
	if g.size += len(data); g.kept == nil || g.size > maxGallery {
		g.kept, g.size = make(map[mooncake.Image][]byte), len(data)
	}
	g.kept[one] = data
	return data
}

// tile is the side of a tile of the pattern, in pixels.
const tile = 16

// tiles calls the function set with each tile of an image, in order of rows, and bits that depend on id, seed and position. The first tiles
// encode the id.
func tiles(one mooncake.Image, seed uint64, set func(area image.Rectangle, bits uint64)) {
	key := splitmix.Mix(one.ID ^ seed ^ imageSalt)
	n := uint64(0)
	for y := 0; y < one.Height; y += tile {
		for x := 0; x < one.Width; x += tile {
			bits := splitmix.Next(key + n)
			if n < 32 {
				bits = key >> (2 * n)
			}
			set(image.Rect(x, y, min(x+tile, one.Width), min(y+tile, one.Height)), bits)
			n++
		}
	}
}

// mosaic returns an image of tiles in four colours, which depend on its id.
func mosaic(one mooncake.Image, seed uint64) image.Image {
	var colours color.Palette
	for i := range uint64(4) {
		v := splitmix.Next(one.ID ^ seed ^ imageSalt + i)
		colours = append(colours, color.RGBA{uint8(v), uint8(v >> 8), uint8(v >> 16), 255}) //nolint:gosec // eight bits of it each
	}
	out := image.NewPaletted(image.Rect(0, 0, one.Width, one.Height), colours)
	tiles(one, seed, func(area image.Rectangle, bits uint64) { fill(out.Pix, out.Stride, area, uint8(bits&3)) })
	return out
}

// grey returns an image of tiles in four shades.
func grey(one mooncake.Image, seed uint64) image.Image {
	out := image.NewGray(image.Rect(0, 0, one.Width, one.Height))
	tiles(one, seed, func(area image.Rectangle, bits uint64) { fill(out.Pix, out.Stride, area, 32+64*uint8(bits&3)) })
	return out
}

func fill(pix []uint8, stride int, area image.Rectangle, v uint8) {
	for y := area.Min.Y; y < area.Max.Y; y++ {
		row := pix[y*stride+area.Min.X : y*stride+area.Max.X]
		for i := range row {
			row[i] = v
		}
	}
}

// ParseImageSize reads a size such as 1024x768, in pixels.
func ParseImageSize(text string) (size ImageSize, err error) {
	w, h, _ := strings.Cut(text, "x")
	if size.Width, err = strconv.Atoi(w); err == nil {
		size.Height, err = strconv.Atoi(h)
	}
	if rule := (mooncake.Image{Width: size.Width, Height: size.Height}).CheckSize(); err != nil || size.Width == 0 || rule != "" {
		return ImageSize{}, fmt.Errorf("want WIDTHxHEIGHT, such as 1024x768: at most %d pixels a side and %d in all", mooncake.MaxSide, mooncake.MaxPixels)
	}
	return size, nil
}
