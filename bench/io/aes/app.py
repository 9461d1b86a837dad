"""Encrypts what it is given with AES-256 in counter mode: key, counter and text in hexadecimal digits."""

import pyaes


def handler(event, context):
    cipher = pyaes.AESModeOfOperationCTR(bytes.fromhex(event["key"]), counter=pyaes.Counter(event["counter"]))
    return {"encrypted": cipher.encrypt(bytes.fromhex(event["text"])).hex()}
