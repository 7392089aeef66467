"""CoNLL-U to trees and back, their scores and their pictures."""
